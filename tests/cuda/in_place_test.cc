// Operations that may write over their input give the same bits when they do: a chunk that keeps
// its activations computes beside them, one that does not computes in place.
#include <gtest/gtest.h>

#include "base/random.h"
#include "ops/elementwise.h"
#include "ops/swiglu.h"

namespace longstride::ops {
namespace {

class InPlace : public testing::Test {
 protected:
  static Device& gpu() {
    static const std::unique_ptr<Device> device = make_cuda_device();
    return *device;
  }
  Stream& stream() { return gpu().stream(); }
  View make(DType t, Shape s) {
    memory_.push_back(gpu().allocate(s.elements() * size_of(t), "test"));
    return {memory_.back()->data(), t, s};
  }
  View random(DType t, Shape s) {
    Random random(7, static_cast<std::uint64_t>(memory_.size()));
    std::vector<float> values(static_cast<std::size_t>(s.elements()));
    for (float& v : values) v = static_cast<float>(random.normal());
    const View f32 = make(DType::kF32, s), x = make(t, s);
    gpu().copy_from_host(f32.data(), values.data(), f32.bytes());
    convert(stream(), {f32, x});
    return x;
  }
  std::vector<std::byte> bytes(const View& v) {
    std::vector<std::byte> host(static_cast<std::size_t>(v.bytes()));
    gpu().copy_to_host(host.data(), v.data(), v.bytes());
    return host;
  }

 private:
  std::vector<std::unique_ptr<Memory>> memory_;
};

TEST_F(InPlace, Swiglu) {
  for (const DType t : {DType::kBF16, DType::kF32}) {
    const View gate = random(t, {300, 264}), up = random(t, {300, 264}), y = make(t, {300, 264});
    swiglu_forward(stream(), {gate, up, y});
    swiglu_forward(stream(), {gate, up, gate});
    EXPECT_TRUE(bytes(y) == bytes(gate)) << name_of(t);
  }
}

}  // namespace
}  // namespace longstride::ops
