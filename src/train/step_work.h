// The arithmetic of a step's tasks, for the share of a step that is done and the time left. Later
// chunks attend to more keys and cost more; windows, selected pages and documents count as they
// are.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "model/config.h"
#include "model/trainable.h"
#include "plan/task_work.h"
#include "schedule/layout.h"
#include "schedule/numerics.h"
#include "schedule/step_schedule.h"

namespace longstride {

// Counts tasks of one sequence. The arguments outlive it.
class StepWork {
 public:
  StepWork(const ModelConfig& config, const NumericsRecord& numerics, const SequenceLayout& layout,
           TrainedParts trained = {})
      : config_(config),
        numerics_(numerics),
        layout_(layout),
        trained_(std::move(trained)),
        tasks_(config, numerics, layout, trained_) {}

  // FLOPs of matrix products, attention and page scores.
  double flops(const Task& task) const;
  double flops(const StepSchedule& schedule) const;

 private:
  double keys_per_query(const Task& task) const;

  const ModelConfig& config_;
  const NumericsRecord& numerics_;
  const SequenceLayout& layout_;
  const TrainedParts trained_;
  TaskCounter tasks_;
};

// Where each of a step's sequences begins, as a share of the arithmetic of all, and at the end 1.
// `sizes` are their tokens, each one document; `options` are the plan's.
std::vector<double> sequence_begins(const ModelConfig& config, const NumericsRecord& numerics,
                                    const ScheduleOptions& options,
                                    std::span<const std::int64_t> sizes);

}  // namespace longstride
