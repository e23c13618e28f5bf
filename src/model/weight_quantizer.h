// Quantizes weights on their device, one after the other, through one temporary tensor: at most the
// largest of them is there unquantized.
#pragma once

#include <memory>

#include "device/device.h"
#include "tensor/view.h"

namespace longstride {

// Not thread-safe: the thread that owns the device. The device outlives it. Takes memory on the
// device when it is first used, and gives it back at its end.
class WeightQuantizer {
 public:
  explicit WeightQuantizer(Device& device) : device_(device) {}

  // Where the values of the next weight go: its shape, with this type of elements. Valid until the
  // next call.
  View temporary(DType dtype, const Shape& shape);
  // Quantizes them into `to`, of a block format and the same shape. Copies into the temporary
  // tensor must have ended; it may be overwritten when this returns.
  void quantize(const View& to);

 private:
  Device& device_;
  std::unique_ptr<Memory> values_, scratch_;
  View current_;
};

}  // namespace longstride
