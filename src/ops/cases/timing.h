// How long calls of operations take, as in training.
#pragma once

#include <functional>

#include "device/device.h"

namespace longstride::ops {

struct TimingOptions {
  double warm_up = 0;  // seconds of calls before the timed ones: a hot GPU is slower
  double seconds = 0.3;
  int least = 5;  // timings, however long they take
};

// The median seconds of a call of `queue`, which calls operations on the device's stream and does
// not wait for them. Kernels are chosen as a training run chooses them. Short calls are timed in
// batches.
double time_calls(Device& device, const std::function<void()>& queue, const TimingOptions& options);

}  // namespace longstride::ops
