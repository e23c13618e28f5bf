#include "plan/step_cost.h"

#include <algorithm>

#include "base/error.h"
#include "plan/cost_flops.h"
#include "plan/cost_pages.h"
#include "plan/cost_seconds.h"
#include "plan/task_work.h"
#include "tensor/dtype_words.h"

namespace longstride {
namespace {

void check_type(const NumericsRecord& numerics, const MachineRates& rates) {
  if (numerics.compute == rates.compute) return;
  throw Error(fmt::format("the rates of {} are for activations in {}, and the step computes in {}",
                          rates.name, word_of(rates.compute), word_of(numerics.compute)),
              "compute in that type, or choose another machine");
}

// Copies in both directions at once, and through the disk.
double copy_seconds(const TaskMoves& m, const CopyRates& r) {
  return std::max({m.in / r.from_host, m.out / r.to_host, (m.in + m.out) / r.both,
                   m.disk_in / r.disk_read + m.disk_out / r.disk_write});
}

// A task that attends, and the ones after it that only store keys and values: the copies of all of
// them are under way together.
struct Group {
  PhaseCost* phase = nullptr;
  std::size_t first = 0;  // task
  double arithmetic = 0, attention = 0;
  TaskMoves moves;
};

// Seconds by which copies make the group longer. Pages are fetched ahead, but only so many, so that
// the others arrive while attention runs.
double exposed(const Group& group, double overlap, const MachineRates& machine) {
  const CopyRates& rates = machine.copies;
  const TaskMoves& m = group.moves;
  if (!m.any()) return 0;
  const double copy = copy_seconds(m, rates),
               behind = m.in > 0 ? std::max(0.0, 1 - m.ahead / m.in) * copy : 0,
               hidden =
                   std::max({group.arithmetic, copy, group.arithmetic - group.attention + behind}),
               apart = group.arithmetic + copy, share = m.late ? 0 : overlap;
  const double beside = rates.beside * (m.in / rates.from_host + m.out / rates.to_host);
  // Before pages are known, the host sleeps until the device has selected them.
  const double sleep = m.late ? machine.host_sleep : 0;
  return share * hidden + (1 - share) * apart - group.arithmetic + beside + sleep;
}

// Of the activations that leave the device.
double disk_share(const StepPlan& plan) {
  std::int64_t records = 0, disk = 0;
  for (const OffloadCapacity& kind : plan.activations) {
    records += kind.records();
    disk += kind.disk_records;
  }
  return records == 0 ? 0 : static_cast<double>(disk) / static_cast<double>(records);
}

class Prediction {
 public:
  Prediction(const ModelConfig& config, const NumericsRecord& numerics, const StepPlan& plan,
             const MachineRates& rates, const PipelineLink& link)
      : rates_(rates),
        link_(link),
        layout_(plan.layout()),
        schedule_(make_step_schedule(layout_, plan.schedule)),
        counter_(config, numerics, layout_, plan.trained, plan.schedule.stage.heads),
        pages_(config, plan, layout_, schedule_),
        sizes_(config, numerics.compute, plan.schedule.stage.heads),
        on_disk_(disk_share(plan)) {}

  StepCost run() {
    for (const Episode& episode : schedule_.episodes) {
      for (const Task& task : episode.tasks) add(task, episode.kind);
      close_group();
    }
    return cost_;
  }
  // After run().
  const StepSchedule& schedule() const { return schedule_; }
  const std::vector<double>& tasks() const { return tasks_; }

 private:
  PhaseCost& phase_of(const Task& task, EpisodeKind episode) {
    const bool forward = task.kind == TaskKind::kEmbed || task.kind == TaskKind::kLayerForward;
    if (!forward) return cost_.backward;
    return episode == EpisodeKind::kRecompute ? cost_.recompute : cost_.forward;
  }

  void add(const Task& task, EpisodeKind episode) {
    const TaskWork work = counter_.count(task);
    const TaskSeconds seconds = seconds_of(work, rates_);
    const double exchange = work.exchanges * link_.latency + link_.seconds_of(work.bytes_sent);
    tasks_.push_back(seconds.total() + exchange);
    PhaseCost& phase = phase_of(task, episode);
    phase.exchange += exchange;
    cost_.bytes_sent += work.bytes_sent;
    phase.products += seconds.products;
    phase.attention += seconds.attention;
    phase.selection += seconds.selection;
    phase.head += seconds.head;
    phase.other += seconds.other;

    TaskMoves moves = pages_.next(task, episode);
    move_activations(task, moves);
    cost_.bytes_in += moves.in;
    cost_.bytes_out += moves.out;
    cost_.disk_in += moves.disk_in;
    cost_.disk_out += moves.disk_out;
    const bool attends = task.attends();
    const bool alone = !task.saved.empty() || !task.fetches.empty();
    if (!attends && !task.append && !alone) return;
    if (attends || !task.append) close_group();
    Group& g = group_;
    if (g.phase == nullptr) {
      g.phase = &phase;
      g.first = tasks_.size() - 1;
    }
    g.arithmetic += seconds.total();
    g.attention += seconds.attention;
    g.moves.in += moves.in;
    g.moves.out += moves.out;
    g.moves.disk_in += moves.disk_in;
    g.moves.disk_out += moves.disk_out;
    g.moves.ahead += moves.ahead;
    g.moves.late = g.moves.late || moves.late;
  }

  // Activations that leave and come back. They arrive before they are needed.
  void move_activations(const Task& task, TaskMoves& moves) const {
    if (task.saved.empty() && task.fetches.empty()) return;
    const std::int64_t T = layout_.chunk_size(task.chunk);
    const auto bytes = [&](Retention which) {
      return static_cast<double>(activation_bytes(sizes_, T, which));
    };
    const double out = bytes(task.saved), in = bytes(task.fetches);
    moves.out += out;
    moves.in += in;
    moves.ahead += in;
    moves.disk_out += out * on_disk_;
    moves.disk_in += in * on_disk_;
  }

  void close_group() {
    if (group_.phase != nullptr) {
      const double seconds = exposed(group_, pages_.overlap(), rates_);
      group_.phase->transfers += seconds;
      tasks_[group_.first] += seconds;
    }
    group_ = {};
  }

  const MachineRates& rates_;
  const PipelineLink& link_;
  const SequenceLayout layout_;
  const StepSchedule schedule_;
  const TaskCounter counter_;
  PageMoves pages_;
  ActivationSizes sizes_;
  double on_disk_;  // the share of activations that leave the device
  StepCost cost_;
  std::vector<double> tasks_;  // seconds
  Group group_;
};

}  // namespace

StepCost predict_step(const ModelConfig& config, const NumericsRecord& numerics,
                      const StepPlan& plan, const MachineRates& rates, const PipelineLink& link) {
  check_type(numerics, rates);
  StepCost cost = Prediction(config, numerics, plan, rates, link).run();
  const double seconds = cost.total();
  cost.tokens_per_s = static_cast<double>(plan.max_tokens) / seconds;
  cost.model_flops = step_model_flops(config, plan);
  cost.utilization = cost.model_flops / seconds / rates.peak_flops;
  return cost;
}

std::vector<PipelineTask> predict_stage(const ModelConfig& config, const NumericsRecord& numerics,
                                        const StepPlan& plan, const MachineRates& rates,
                                        const PipelineLink& link) {
  check_type(numerics, rates);
  Prediction prediction(config, numerics, plan, rates, link);
  prediction.run();
  return pipeline_tasks(prediction.schedule(), plan.schedule.stage, prediction.tasks());
}

std::vector<double> task_seconds(const ModelConfig& config, const NumericsRecord& numerics,
                                 const StepPlan& plan, const MachineRates& rates) {
  check_type(numerics, rates);
  const SequenceLayout layout = plan.layout();
  const StepSchedule schedule = make_step_schedule(layout, plan.schedule);
  const TaskCounter counter(config, numerics, layout, plan.trained, plan.schedule.stage.heads);
  std::vector<double> seconds;
  for (const Episode& episode : schedule.episodes)
    for (const Task& task : episode.tasks)
      seconds.push_back(seconds_of(counter.count(task), rates).total());
  return seconds;
}

double predict_update(const UpdateBytes& bytes, const MachineRates& rates) {
  const double offloaded = bytes.state_host + bytes.state_disk;
  // The norm reads the gradients once more than the update does.
  const double touched = bytes.weights + 2 * bytes.gradients + 2 * (bytes.state_device + offloaded);
  const TaskMoves moves{
      .in = offloaded, .out = offloaded, .disk_in = bytes.state_disk, .disk_out = bytes.state_disk};
  return std::max(touched / rates.update, copy_seconds(moves, rates.copies));
}

}  // namespace longstride
