// Results and times of one sequence, or of all sequences of a step.
#pragma once

#include <cstdint>

#include "attention/selected_lists.h"
#include "pages/kv_store.h"

namespace longstride {

struct StepSeconds {
  double total = 0;
  double forward = 0;
  double recompute = 0;  // forward work recomputed in the backward pass
  double backward = 0;   // without recompute
  double update = 0;     // clipping and optimizer

  StepSeconds& operator+=(const StepSeconds& more) {
    total += more.total;
    forward += more.forward;
    recompute += more.recompute;
    backward += more.backward;
    update += more.update;
    return *this;
  }
};

struct StepStatistics {
  double loss_sum = 0;       // over the targets
  std::int64_t targets = 0;  // neither masked nor absent
  std::int64_t correct = 0;  // targets to which the model gave the largest logit
  StepSeconds seconds;
  MovedBytes moved;  // pages that left the device and came back
  OffloadTimes move_times;
  SelectionCounts selection;  // of sparse layers

  double accuracy() const { return static_cast<double>(correct) / static_cast<double>(targets); }
  StepStatistics& operator+=(const StepStatistics& more) {
    loss_sum += more.loss_sum;
    targets += more.targets;
    correct += more.correct;
    seconds += more.seconds;
    moved += more.moved;
    move_times += more.move_times;
    selection += more.selection;
    return *this;
  }
};

}  // namespace longstride
