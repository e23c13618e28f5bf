// A snapshot holds the values at the time it was taken, as far as host memory allowed a copy.
#include "train/save_snapshot.h"

#include <gtest/gtest.h>

#include <cstring>

#include "model/presets.h"

namespace longstride {
namespace {

class SnapshotTest : public ::testing::Test {
 protected:
  SnapshotTest() { initialize_random(weights_, config_, 1); }

  std::string bytes_of(const CheckpointTensors& tensors) const {
    std::string all;
    const ByteSink sink = [&](std::span<const std::byte> bytes) {
      all.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    };
    for (const TensorsToWrite* of : {&tensors.weights, &tensors.state})
      for (std::int64_t i = 0; i < std::ssize(of->tensors); ++i) of->read(i, sink);
    return all;
  }
  void update(Optimizer& optimizer) {
    ParameterSet gradients(*device_, config_, DType::kF32, "gradients");
    for (std::int64_t i = 0; i < gradients.size(); ++i) {
      auto* g = static_cast<float*>(gradients.view(i).data());
      std::fill_n(g, gradients.view(i).elements(), 0.5f);
    }
    optimizer.update(gradients, 1e-2, 1.0, 1);
  }

  const ModelConfig config_ = find_preset("tiny-llama");
  const std::unique_ptr<Device> device_ = make_cpu_device();
  ParameterSet weights_{*device_, config_, DType::kBF16, "weights"};
};

TEST_F(SnapshotTest, OfEverythingStaysAsItWas) {
  for (const StatePlace place : {StatePlace::kDevice, StatePlace::kHost}) {
    Optimizer optimizer(weights_, {}, {.place = place});
    const std::string before = bytes_of(tensors_in_place(weights_, optimizer));
    const auto plan = plan_snapshot(weights_, optimizer, std::ssize(before));
    ASSERT_TRUE(plan && plan->detached());
    EXPECT_EQ(plan->bytes, std::ssize(before));
    const std::unique_ptr<Memory> memory = SaveSnapshot::allocate(*device_, *plan);
    const SaveSnapshot snapshot(*plan, memory.get(), weights_, optimizer);
    EXPECT_TRUE(snapshot.detached());
    update(optimizer);
    EXPECT_TRUE(bytes_of(snapshot.tensors()) == before);
    EXPECT_FALSE(bytes_of(tensors_in_place(weights_, optimizer)) == before);
  }
}

TEST_F(SnapshotTest, WithoutRoomIsReadWhereItLives) {
  Optimizer optimizer(weights_, {}, {});
  const auto plan = plan_snapshot(weights_, optimizer, 1000);
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(plan->bytes, 0);
  EXPECT_EQ(SaveSnapshot::allocate(*device_, *plan), nullptr);
  const SaveSnapshot snapshot(*plan, nullptr, weights_, optimizer);
  EXPECT_FALSE(snapshot.detached());
  update(optimizer);
  EXPECT_TRUE(bytes_of(snapshot.tensors()) == bytes_of(tensors_in_place(weights_, optimizer)));
}

}  // namespace
}  // namespace longstride
