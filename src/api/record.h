// Converts the trainer's reports to the observers' records.
#pragma once

#include "observe/flops.h"
#include "observe/step_record.h"
#include "train/trainer.h"

namespace longstride::api {

StepRecord make_record(const StepReport& report, const RunPlan& plan);
// The model's FLOPs for documents of these lengths, forward and backward.
double flops_of(const ModelConfig& config, const SparseFlops& sparse,
                std::span<const std::int64_t> document_lengths);

}  // namespace longstride::api
