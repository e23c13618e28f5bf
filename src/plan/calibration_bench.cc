#include "plan/calibration_bench.h"

#include <algorithm>

#include "base/error.h"
#include "base/random.h"
#include "ops/cases/timing.h"

namespace longstride {
namespace {

constexpr std::size_t kValues = std::size_t{1} << 20;
constexpr std::int64_t kMiB = std::int64_t{1} << 20;

}  // namespace

CalibrationShapes calibration_shapes(const Device& device) {
  if (device.computes_in_bf16())
    return {.chunk = 4096,
            .hidden = 3584,
            .ffn = 18944,
            .query_heads = 28,
            .kv_heads = 4,
            .head_rows = 2048,
            .vocabulary = 32768,
            .few_keys = 4096,
            .many_keys = 28672,
            .window = 1024,
            .selected_pages = 64,
            .scored_pages = 4096,
            .update_elements = 64 * kMiB,
            .copy_bytes = 512 * kMiB,
            .disk_bytes = 1024 * kMiB};
  return {.chunk = 256,
          .hidden = 512,
          .ffn = 1536,
          .query_heads = 4,
          .kv_heads = 1,
          .head_rows = 128,
          .vocabulary = 4096,
          .few_keys = 256,
          .many_keys = 1024,
          .window = 128,
          .selected_pages = 4,
          .scored_pages = 64,
          .update_elements = 2 * kMiB,
          .copy_bytes = 32 * kMiB,
          .disk_bytes = 64 * kMiB};
}

CalibrationBench::CalibrationBench(Device& device, double seconds, int measurements)
    : device_(device),
      compute_(device.computes_in_bf16() ? DType::kBF16 : DType::kF32),
      start_(std::chrono::steady_clock::now()),
      seconds_(seconds),
      left_(measurements) {
  Random random(1);
  for (std::size_t i = 0; i < kValues; ++i) {
    values_.push_back(static_cast<float>(2 * random.uniform() - 1));
    values16_.push_back(to_bf16(values_.back()));
  }
}

double CalibrationBench::elapsed() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

std::byte* CalibrationBench::allocate(std::int64_t bytes) {
  memory_.push_back(device_.allocate(bytes, "calibration"));
  return memory_.back()->data();
}

View CalibrationBench::noise(DType dtype, Shape shape) {
  const View view(allocate(shape.elements() * size_of(dtype)), dtype, shape);
  const bool half = dtype == DType::kBF16;
  LS_CHECK(half || dtype == DType::kF32, "noise of {}", name_of(dtype));
  // A GPU computes faster on zeros, so all of it is noise; the same values again and again will do.
  const void* values = half ? static_cast<const void*>(values16_.data()) : values_.data();
  const auto piece = static_cast<std::int64_t>(kValues) * size_of(dtype);
  for (std::int64_t at = 0; at < view.bytes(); at += piece)
    device_.copy_from_host(static_cast<std::byte*>(view.data()) + at, values,
                           std::min(piece, view.bytes() - at));
  return view;
}

View CalibrationBench::scratch(std::int64_t elements) {
  if (elements == 0) return {};
  return {allocate(elements * size_of(DType::kF32)), DType::kF32, {elements}};
}

void CalibrationBench::clear() {
  device_.stream().synchronize();
  memory_.clear();
}

double CalibrationBench::time(const std::function<void()>& queue) {
  const double mine = std::max(0.0, seconds_ - elapsed()) / std::max(1, left_--);
  // Half of a share is for what a measurement does besides: allocating, copying, choosing kernels.
  return ops::time_calls(device_, queue, {.warm_up = mine / 6, .seconds = mine / 3, .least = 3});
}

}  // namespace longstride
