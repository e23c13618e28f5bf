#include "train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "data/corpus_digest.h"
#include "tensor/stochastic_round.h"
#include "train/learning_rate.h"
#include "train/resume_point.h"
#include "train/step_trace.h"

namespace longstride {
namespace {

// Host memory that stays free beside the copy of what is saved.
std::int64_t snapshot_budget(const CheckpointConfig& checkpoint, const Device& device) {
  constexpr std::int64_t kReserve = std::int64_t{4} << 30;
  const std::int64_t free = device.available_host_bytes();
  const std::int64_t most = std::max<std::int64_t>(0, free - std::max(kReserve, free / 20));
  return checkpoint.snapshot ? std::min(*checkpoint.snapshot, most) : most;
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

Trainer::Trainer(RunPlan plan, Device& device, const OnPhase& on_phase)
    : plan_(std::move(plan)),
      weights_(device, plan_.model.specs, "weights"),
      gradients_(ParameterSet::gradients(device, plan_.model.specs)),
      saves_(plan_.model.config, plan_.model.side_files) {
  const TrainConfig& config = plan_.config;
  const std::filesystem::path& root = config.checkpoint.directory;
  make_writable_directory(root);
  lock_ = std::make_unique<DirectoryLock>(root);
  if (!plan_.resume) find_resume_point(root, {});  // another run may have saved since the plan
  if (plan_.resume && plan_.resume->named) set_aside_later_saves(root, *plan_.resume);
  remove_unfinished_saves(root);

  state_.seed = static_cast<std::uint64_t>(config.training.seed);
  state_.numerics = plan_.numerics;
  state_.config = config_to_json(config);
  state_.data_digest = corpus_digest(*plan_.corpus);
  timed("weights", on_phase, [&] {
    if (plan_.model.directory)
      plan_.model.directory->load(weights_);
    else
      initialize_random(weights_, plan_.model.config, state_.seed);
  });
  timed("optimizer", on_phase, [&] {
    optimizer_ = std::make_unique<Optimizer>(weights_, config.optimizer, plan_.state);
    if (plan_.resume) restore();
  });
  timed("memory", on_phase, [&] {
    runner_ = std::make_unique<StepRunner>(plan_.model.config, weights_, gradients_,
                                           state_.numerics, plan_.step_options());
    prepare_snapshots();
  });
}

void Trainer::prepare_snapshots() {
  const TrainConfig& config = plan_.config;
  if (config.checkpoint.every == 0 || config.checkpoint.every >= config.training.steps) return;
  Device& device = weights_.device();
  try {
    snapshot_plan_ =
        plan_snapshot(weights_, *optimizer_, snapshot_budget(config.checkpoint, device));
    if (snapshot_plan_) snapshot_memory_ = SaveSnapshot::allocate(device, *snapshot_plan_);
  } catch (const Error& e) {
    log_warning("training waits for its saves: {}", e.what());
    snapshot_plan_.reset();
  }
}

void Trainer::timed(const std::string& what, const OnPhase& on_phase,
                    const std::function<void()>& f) {
  if (on_phase) on_phase(what);
  const auto start = std::chrono::steady_clock::now();
  f();
  start_times_.push_back({what, seconds_since(start)});
}

void Trainer::restore() {
  const TrainState& saved = plan_.resume->state;
  if (const std::string difference = describe_difference(plan_.numerics, saved.numerics);
      !difference.empty())
    log_warning(
        "this machine's arithmetic differs from the checkpoint's, so results will not repeat bit "
        "for bit ({})",
        difference);
  load_optimizer(plan_.resume->directory, weights_, *optimizer_);
  state_.step = saved_step_ = saved.step;
  // A process that was killed may have saved without removing what the save replaced.
  old_saves_are_due_ = true;
  state_.updates = saved.updates;
  state_.skipped_in_a_row = saved.skipped_in_a_row;
  state_.data_position = saved.data_position;
  // Everything a run may choose anew on another machine is replayed as it was.
  state_.numerics.head_block_rows = saved.numerics.head_block_rows;
  if (saved.numerics.device == plan_.numerics.device &&
      saved.numerics.kernels == plan_.numerics.kernels)
    state_.numerics.choices = saved.numerics.choices;
}

bool Trainer::run(const TrainCallbacks& callbacks) {
  try {
    run_steps(callbacks);
  } catch (const Interrupted&) {
    settle(saves_.wait(), callbacks);
    if (!callbacks.leave_unsaved || !callbacks.leave_unsaved()) save_at_the_end(callbacks);
    return false;
  } catch (const std::exception&) {
    save_if_possible(callbacks);
    throw;
  }
  save_at_the_end(callbacks);
  return true;
}

void Trainer::run_steps(const TrainCallbacks& callbacks) {
  const TrainConfig& config = plan_.config;
  if (state_.step >= config.training.steps) return;
  if (state_.numerics.choices.empty())
    timed("kernels", nullptr,
          [&] { state_.numerics.choices = runner_->choose_kernels(callbacks.should_stop); });
  if (callbacks.on_start) callbacks.on_start();
  while (state_.step < config.training.steps) {
    const StepReport report = step(callbacks);
    settle(saves_.poll(), callbacks);
    if (callbacks.on_step) callbacks.on_step(report);
    // A later step was finite, so the last save is good.
    if (!report.skipped && saved_step_ < state_.step) remove_old_saves();
    const std::int64_t every = config.checkpoint.every;
    save_is_due_ = save_is_due_ || (every > 0 && state_.step % every == 0);
    // The save of a step that was skipped would take the place of a good one.
    if (save_is_due_ && state_.skipped_in_a_row == 0 && state_.step < config.training.steps)
      save_on_the_way(callbacks);
  }
}

void Trainer::remove_old_saves() {
  if (!std::exchange(old_saves_are_due_, false)) return;
  const CheckpointConfig& checkpoint = plan_.config.checkpoint;
  remove_old_checkpoints(checkpoint.directory, saved_step_, checkpoint.keep);
}

void Trainer::save_on_the_way(const TrainCallbacks& callbacks) {
  save_is_due_ = false;
  settle(saves_.wait(), callbacks);
  const TraceSpan span(TraceTrack::kStep, {"save", state_.step});
  if (callbacks.on_saving) callbacks.on_saving(true);
  if (!snapshot_plan_)
    return settle(saves_.save_now(save_job(), tensors_in_place(weights_, *optimizer_)), callbacks);
  std::unique_ptr<SaveSnapshot> snapshot;
  try {
    snapshot = std::make_unique<SaveSnapshot>(*snapshot_plan_, snapshot_memory_.get(), weights_,
                                              *optimizer_);
  } catch (const std::exception&) {
    return settle(SaveOutcome{state_.step, {}, std::current_exception()}, callbacks);
  }
  saves_.start(save_job(), std::move(snapshot));
}

void Trainer::save_at_the_end(const TrainCallbacks& callbacks) {
  settle(saves_.wait(), callbacks);
  if (state_.step == 0) return;
  if (saved_step_ != state_.step) {
    const TraceSpan span(TraceTrack::kStep, {"save", state_.step});
    if (callbacks.on_saving) callbacks.on_saving(true);
    settle(saves_.save_now(save_job(), tensors_in_place(weights_, *optimizer_)), callbacks, true);
  }
  // The save of a step that was skipped takes no other's place.
  if (state_.skipped_in_a_row == 0) remove_old_saves();
}

void Trainer::save_if_possible(const TrainCallbacks& callbacks) {
  settle(saves_.wait(), callbacks);
  if (updating_ || state_.step == 0 || saved_step_ == state_.step) return;
  if (callbacks.on_saving) callbacks.on_saving(true);
  settle(saves_.save_now(save_job(), tensors_in_place(weights_, *optimizer_)), callbacks);
}

void Trainer::settle(const std::optional<SaveOutcome>& outcome, const TrainCallbacks& callbacks,
                     bool must_succeed) {
  if (!outcome) return;
  if (callbacks.on_saving) callbacks.on_saving(false);
  if (!outcome->error) {
    saved_step_ = outcome->step;
    old_saves_are_due_ = true;
    if (callbacks.on_save) callbacks.on_save(outcome->path);
    return;
  }
  if (must_succeed) std::rethrow_exception(outcome->error);
  try {
    std::rethrow_exception(outcome->error);
  } catch (const std::exception& e) {
    log_warning("step {} could not be saved: {}", outcome->step, e.what());
  }
}

void Trainer::handle_nonfinite(StepReport& report, const std::string& where) {
  constexpr std::int64_t kMostInARow = 10;
  const std::string tensor = optimizer_->first_nonfinite(gradients_);
  std::string what = fmt::format("step {}: loss {}", report.step, report.loss);
  if (!where.empty()) what += ", " + where;
  what += fmt::format("; gradient norm {}", report.gradient_norm);
  if (!tensor.empty()) what += fmt::format(", not finite from {} on", tensor);
  const bool skip = plan_.config.training.nonfinite == "skip";
  if (skip && state_.skipped_in_a_row < kMostInARow) {
    ++state_.skipped_in_a_row;
    log_warning("{}; the step is skipped and the weights stay as they were", what);
    report.skipped = true;
    return;
  }
  state_.next_is_nonfinite = true;
  throw Error(
      what + (skip ? fmt::format("; {} steps in a row were skipped", kMostInARow)
                   : "; the weights were not updated"),
      "lower optimizer.learning_rate or set optimizer.clip_norm, and resume from an earlier "
      "checkpoint (--resume=DIR); training.nonfinite = \"skip\" passes over single bad steps");
}

Sample Trainer::next_sample(std::int64_t sequence, StepReport& report) {
  const TraceSpan span(TraceTrack::kStep, {"data", sequence});
  Sample sample = plan_.samples->sample(state_.data_position + sequence);
  report.tokens += sample.size();
  for (const std::int64_t length : sample.document_lengths())
    report.document_lengths.push_back(length);
  return sample;
}

StepReport Trainer::step(const TrainCallbacks& callbacks) {
  const auto start = std::chrono::steady_clock::now();
  const TrainConfig& config = plan_.config;
  StepReport report;
  report.step = state_.step + 1;
  report.total_steps = config.training.steps;
  const TraceSpan step_span(TraceTrack::kStep, {"step", report.step});
  const auto should_stop = [&] {
    settle(saves_.poll(), callbacks);  // told as soon as it has ended
    return callbacks.should_stop && callbacks.should_stop();
  };
  const auto on_progress = [&](std::int64_t sequence) -> OnSequenceProgress {
    if (!callbacks.on_progress) return nullptr;
    return [&, sequence](const SequenceProgress& progress) {
      const auto batch = static_cast<double>(config.training.batch);
      callbacks.on_progress({report.step, sequence, config.training.batch, progress,
                             (static_cast<double>(sequence) + progress.done) / batch});
    };
  };

  // The loss is one mean over all counted targets of the step, so their number comes first; samples
  // come when it is their turn, so that one is held at a time.
  {
    const TraceSpan span(TraceTrack::kStep, {"targets"});
    for (std::int64_t i = 0; i < config.training.batch; ++i)
      report.counted += plan_.samples->counted_targets(state_.data_position + i);
  }

  gradients_.zero();
  double loss_sum = 0;
  std::string nonfinite;  // where the first loss that is not finite was met
  for (std::int64_t sequence = 0; sequence < config.training.batch; ++sequence) {
    const Sample sample = next_sample(sequence, report);
    const TraceSpan span(TraceTrack::kStep, {"sequence", sequence});
    const std::uint64_t rounding = mixed(mixed(state_.seed, report.step), sequence);
    const SequenceResult r =
        runner_->run({sample.tokens, sample.targets, sample.document_starts, 0, rounding},
                     1.0 / static_cast<double>(report.counted), should_stop, on_progress(sequence));
    loss_sum += r.loss_sum;
    report.correct += r.correct;
    report.forward_s += r.forward_s;
    report.recompute_s += r.recompute_s;
    report.backward_s += r.backward_s;
    report.moved_out += r.moved.out;
    report.moved_in += r.moved.in;
    report.move_times += r.move_times;
    if (r.nonfinite_chunk >= 0 && nonfinite.empty())
      nonfinite = fmt::format("first in chunk {} (from token {}) of sequence {}", r.nonfinite_chunk,
                              r.nonfinite_chunk * state_.numerics.chunk_tokens, sequence);
  }
  report.loss = loss_sum / static_cast<double>(report.counted);

  if (!std::exchange(updated_, true) && callbacks.before_first_update)
    callbacks.before_first_update();
  saves_.wait_before_update();
  const auto update_start = std::chrono::steady_clock::now();
  const TraceSpan update_span(compute_track(weights_.device().stream()), {"update"});
  report.gradient_norm = optimizer_->gradient_norm(gradients_);
  if (!std::isfinite(report.loss) || !std::isfinite(report.gradient_norm))
    handle_nonfinite(report, nonfinite);
  else
    state_.skipped_in_a_row = 0;
  const double clip = config.optimizer.clip_norm;
  const double scale = clip > 0 && report.gradient_norm > clip ? clip / report.gradient_norm : 1.0;
  report.learning_rate = learning_rate_at(config.schedule, config.optimizer.learning_rate,
                                          report.step, config.training.steps);
  if (!report.skipped) {
    updating_ = true;
    optimizer_->update(gradients_, report.learning_rate, scale, state_.updates + 1);
    updating_ = false;
    ++state_.updates;
  }
  report.update_s = seconds_since(update_start);

  state_.step = report.step;
  state_.data_position += config.training.batch;
  report.samples = state_.data_position;
  report.epochs = static_cast<double>(state_.data_position) /
                  static_cast<double>(plan_.samples->samples_per_epoch());
  report.total_s = seconds_since(start);
  return report;
}

}  // namespace longstride
