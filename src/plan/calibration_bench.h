// What the parts of a calibration share: tensors of noise on the device, and a limit of time that
// their measurements divide among themselves. Not thread-safe: the stream's thread owns it.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "device/device.h"
#include "tensor/view.h"

namespace longstride {

// Sizes of what is timed. Large enough to be as in training, and small enough for the time.
struct CalibrationShapes {
  std::int64_t chunk, hidden, ffn, query_heads, kv_heads;
  std::int64_t head_rows, vocabulary;  // of the loss head's products
  std::int64_t few_keys, many_keys;    // before the chunk
  std::int64_t window;
  std::int64_t selected_pages, scored_pages;
  std::int64_t update_elements, copy_bytes, disk_bytes;
  static constexpr std::int64_t kHeadSize = 128, kPage = 128;
};
// Those of Qwen2.5-7B where activations are BF16, else small ones.
CalibrationShapes calibration_shapes(const Device& device);

class CalibrationBench {
 public:
  // `seconds` for `measurements` calls of time(); a call takes as long as it must at least.
  CalibrationBench(Device& device, double seconds, int measurements);

  Device& device() const { return device_; }
  Stream& stream() const { return device_.stream(); }
  DType compute() const { return compute_; }
  // In the type of activations, or F32 or I32; uniform in [-1, 1). Lives until clear().
  View noise(Shape shape) { return noise(compute_, shape); }
  View noise(DType dtype, Shape shape);
  View scratch(std::int64_t elements);  // F32; absent if there are none
  void clear();

  // The median seconds of a call of `queue`, as ops::time_calls has it.
  double time(const std::function<void()>& queue);
  // Seconds since construction.
  double elapsed() const;

 private:
  std::byte* allocate(std::int64_t bytes);

  Device& device_;
  DType compute_;
  std::chrono::steady_clock::time_point start_;
  double seconds_;
  int left_;
  std::vector<float> values_;
  std::vector<bf16> values16_;
  std::vector<std::unique_ptr<Memory>> memory_;
};

}  // namespace longstride
