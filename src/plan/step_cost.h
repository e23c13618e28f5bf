// How long a planned step will take on a machine, known before it runs and without any device: its
// tasks are counted (plan/task_work.h), timed at the machine's rates (plan/cost_seconds.h), and the
// pages that do not stay on the device are copied beside them (plan/cost_pages.h).
//
// For one document of plan.max_tokens. A prediction does not rise if pages get more of the device,
// if a rate of the machine rises, or if an activation is retained (except in the last layer, whose
// first forward pass stops at its keys and values if nothing of it is retained).
#pragma once

#include <vector>

#include "plan/machine_rates.h"
#include "plan/pipeline_simulation.h"
#include "plan/step_plan.h"

namespace longstride {

// Seconds of one phase, as the step's own clock tells them apart: the loss head is backward.
struct PhaseCost {
  double products = 0, attention = 0;
  double selection = 0;  // of pages
  double head = 0;       // the loss head
  double other = 0;      // norms, RoPE, SwiGLU, sums of partial results, overhead of tasks
  double transfers = 0;  // waiting for pages, and computing more slowly beside their copies
  double exchange = 0;   // between processes that share heads; nothing is computed beside it
  double total() const {
    return products + attention + selection + head + other + transfers + exchange;
  }
};

struct StepCost {
  PhaseCost forward, recompute, backward;
  double tokens_per_s = 0;
  double model_flops = 0;              // as `bench step` counts them
  double utilization = 0;              // model FLOPs per second, as a share of the machine's peak
  double bytes_in = 0, bytes_out = 0;  // of pages, to and from the device
  double disk_in = 0, disk_out = 0;    // the part that comes from disk and goes there
  double bytes_sent = 0;               // to processes that share heads, by one

  double total() const { return forward.total() + recompute.total() + backward.total(); }
  // Of all phases.
  double selection() const { return forward.selection + recompute.selection; }
  double other() const { return forward.other + recompute.other + backward.other; }
  double exposed_transfers() const {
    return forward.transfers + recompute.transfers + backward.transfers;
  }
  double exchange() const { return forward.exchange + recompute.exchange + backward.exchange; }
};

// `link`: between processes that share heads; without it their exchange takes no time. Throws Error
// if the rates are for another type of activations than the record's.
StepCost predict_step(const ModelConfig& config, const NumericsRecord& numerics,
                      const StepPlan& plan, const MachineRates& rates,
                      const PipelineLink& link = {});

// The tasks of a plan as a pipeline's stage runs them, with the copies that they wait for. Together
// they take as long as predict_step says. Throws like it.
std::vector<PipelineTask> predict_stage(const ModelConfig& config, const NumericsRecord& numerics,
                                        const StepPlan& plan, const MachineRates& rates,
                                        const PipelineLink& link = {});

// Arithmetic of every task, in the order of make_step_schedule(plan.layout(), plan.schedule).
// Throws like predict_step.
std::vector<double> task_seconds(const ModelConfig& config, const NumericsRecord& numerics,
                                 const StepPlan& plan, const MachineRates& rates);

// What an optimizer's update reads and writes. The state (moments and masters) is on the device, or
// passes through it from host memory or disk.
struct UpdateBytes {
  double weights = 0, gradients = 0;
  double state_device = 0, state_host = 0, state_disk = 0;
};
// Seconds of gradient norm and update.
double predict_update(const UpdateBytes& bytes, const MachineRates& rates);

}  // namespace longstride
