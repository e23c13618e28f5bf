// How long the arithmetic of a task takes on a machine. Every part falls as a rate rises and rises
// with the work, so that predictions are monotone.
#pragma once

#include "plan/machine_rates.h"
#include "plan/task_work.h"

namespace longstride {

struct TaskSeconds {
  double products = 0;   // of a layer, with the sums of weight gradients
  double attention = 0;  // without the memory traffic around it
  double head = 0;       // everything of the loss head
  double selection = 0;  // scores of pages
  double other = 0;      // norms, RoPE, SwiGLU, pages, merging, and the task's overhead
  double total() const { return products + attention + head + selection + other; }
};

TaskSeconds seconds_of(const TaskWork& work, const MachineRates& rates);

}  // namespace longstride
