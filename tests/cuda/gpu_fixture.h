// Tensors on the GPU, for tests that call operations directly.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "base/random.h"
#include "ops/elementwise.h"

namespace longstride {

class OnGpu : public testing::Test {
 protected:
  static Device& gpu() {
    static const std::unique_ptr<Device> device = make_cuda_device();
    return *device;
  }
  static Stream& stream() { return gpu().stream(); }

  // A tensor of its own, zeroed; it lives as long as the test.
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
    ops::convert(stream(), {f32, x});
    return x;
  }
  static std::vector<std::byte> bytes(const View& v) {
    std::vector<std::byte> host(static_cast<std::size_t>(v.bytes()));
    gpu().copy_to_host(host.data(), v.data(), v.bytes());
    return host;
  }

 private:
  std::vector<std::unique_ptr<Memory>> memory_;
};

}  // namespace longstride
