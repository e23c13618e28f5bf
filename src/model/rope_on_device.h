// The rotary frequencies of a model in device memory, once per sequence of positions that its
// layers have: Gemma's layers with windows have their own.
#pragma once

#include <memory>

#include "device/device.h"
#include "model/config.h"
#include "tensor/view.h"

namespace longstride {

struct RopeViews {
  ConstView frequencies;  // F64 [C/2]
  double attention_factor = 1.0;
  ConstView local_frequencies = {};  // of layers that have their own; absent: none has
  double local_attention_factor = 1.0;

  std::int64_t bytes() const {
    return frequencies.bytes() + (local_frequencies.present() ? local_frequencies.bytes() : 0);
  }
};

// The views without data, for recording passes.
RopeViews rope_shapes(const ModelConfig& config);

// The device must outlive it. Not thread-safe.
class RopeOnDevice {
 public:
  RopeOnDevice(Device& device, const ModelConfig& config);
  // Valid as long as this.
  const RopeViews& views() const { return views_; }

 private:
  std::unique_ptr<Memory> memory_;
  RopeViews views_;
};

}  // namespace longstride
