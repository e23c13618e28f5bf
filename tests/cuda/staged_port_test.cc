// Tensors of stages that share a GPU, staged through pinned memory: right, though computing goes on
// and tensors are used again at once; and of the planned size.
#include <gtest/gtest.h>

#include <atomic>
#include <vector>

#include "comm/thread_link.h"
#include "ops/elementwise.h"
#include "train/linked_stages.h"

namespace longstride {
namespace {

constexpr std::int64_t kChunks = 24;

float value_of(std::int64_t chunk, std::int64_t i) {
  return static_cast<float>(chunk * 1000 + i % 997);
}

class DoublingStage {
 public:
  DoublingStage(Device& device, comm::Link& link, std::int64_t tokens, std::int64_t hidden)
      : device_(device),
        tokens_(tokens),
        hidden_(hidden),
        first_(link.rank() == 0),
        last_(link.rank() + 1 == link.size()),
        neighbours_(device, link, tokens * hidden * 4),
        memory_(device.allocate(tokens * hidden * 4, "tensor")),
        other_(device.allocate(tokens * hidden * 16, "other work")) {}

  // Returns how many values were wrong at the ends.
  std::int64_t run(float stages) {
    std::vector<Neighbours::Coming> coming;
    for (std::int64_t c = 0; c < kChunks && !first_; ++c)
      coming.push_back({false, tensor_of(c).bytes()});
    for (std::int64_t c = kChunks; c-- > 0 && !last_;)
      coming.push_back({true, tensor_of(c).bytes()});
    neighbours_.begin(coming);
    float factor = 1;
    for (float s = 0; s < stages; ++s) factor *= 2;
    std::int64_t wrong = 0;
    for (std::int64_t c = 0; c < kChunks; ++c) {
      if (first_)
        fill(c, 1);
      else
        neighbours_.receive(tensor_of(c));
      work(c);
      if (last_)
        wrong += differing(c, factor);
      else
        neighbours_.send(tensor_of(c));
      ops::zero(device_.stream(), {tensor_of(c)});
    }
    for (std::int64_t c = kChunks; c-- > 0;) {
      if (last_)
        fill(c, factor);
      else
        neighbours_.receive_gradient(tensor_of(c));
      work(c);
      if (first_)
        wrong += differing(c, factor * factor);
      else
        neighbours_.send_gradient(tensor_of(c));
      ops::zero(device_.stream(), {tensor_of(c)});
    }
    neighbours_.end();
    neighbours_.finish();
    return wrong;
  }

 private:
  View tensor_of(std::int64_t chunk) const {
    const std::int64_t tokens = chunk + 1 == kChunks ? tokens_ / 4 - 23 : tokens_;
    return {memory_->data(), DType::kF32, Shape({tokens, hidden_})};
  }
  void fill(std::int64_t chunk, float factor) {
    const View tensor = tensor_of(chunk);
    std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
    for (std::int64_t i = 0; i < tensor.elements(); ++i)
      values[static_cast<std::size_t>(i)] = factor * value_of(chunk, i);
    device_.copy_from_host(tensor.data(), values.data(), tensor.bytes());
  }
  // Doubles the tensor, before and after other work that takes as long as some copies.
  void work(std::int64_t chunk) {
    const View tensor = tensor_of(chunk),
               other(other_->data(), DType::kF32, Shape({4 * tokens_, hidden_}));
    for (int i = 0; i < 20; ++i) ops::add(device_.stream(), {.a = other, .b = other, .y = other});
    ops::add(device_.stream(), {.a = tensor, .b = tensor, .y = tensor});
    for (int i = 0; i < 20; ++i) ops::add(device_.stream(), {.a = other, .b = other, .y = other});
  }
  std::int64_t differing(std::int64_t chunk, float factor) {
    const View tensor = tensor_of(chunk);
    std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
    device_.copy_to_host(values.data(), tensor.data(), tensor.bytes());
    std::int64_t wrong = 0;
    for (std::int64_t i = 0; i < tensor.elements(); ++i)
      wrong += values[static_cast<std::size_t>(i)] != factor * value_of(chunk, i);
    return wrong;
  }

  Device& device_;
  std::int64_t tokens_, hidden_;
  bool first_, last_;
  LinkedStages neighbours_;
  std::unique_ptr<Memory> memory_, other_;
};

void expect_doubled_tensors(std::int64_t tokens, std::int64_t hidden) {
  for (const int ranks : {2, 3}) {
    std::atomic<std::int64_t> wrong{0};
    comm::ThreadHub hub(ranks);
    for (const auto& failure : comm::run_thread_ranks(hub, {}, [&](comm::MessageLink& link) {
           const auto device = make_cuda_device();
           DoublingStage stage(*device, link, tokens, hidden);
           for (int sequence = 0; sequence < 3; ++sequence)
             wrong += stage.run(static_cast<float>(ranks));
         }))
      if (failure) std::rethrow_exception(failure);
    EXPECT_EQ(wrong, 0) << ranks;
  }
}

TEST(StagedPort, StagesShareAGpu) { expect_doubled_tensors(128, 96); }
TEST(StagedPort, LargeStagesToo) { expect_doubled_tensors(4096, 896); }

TEST(StagedPort, TakesThePlannedBytes) {
  comm::ThreadHub hub(1);
  for (const auto& failure : comm::run_thread_ranks(hub, {}, [&](comm::MessageLink& link) {
         const auto device = make_cuda_device();
         const PortBytes planned = message_port_bytes(*device, 1'000'001);
         const std::int64_t before = device->allocated_bytes();
         const auto port = make_message_port(*device, link, 1'000'001);
         EXPECT_EQ(device->allocated_bytes() - before, planned.device);
         EXPECT_GT(planned.host, 4'000'000);
       }))
    if (failure) std::rethrow_exception(failure);
}

}  // namespace
}  // namespace longstride
