#include "train/trainer.h"

#include <chrono>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "data/corpus_digest.h"
#include "tensor/stochastic_round.h"
#include "train/learning_rate.h"
#include "train/same_run.h"
#include "train/step_trace.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

Trainer::Trainer(RunPlan plan, Device& device, bool resume)
    : plan_(std::move(plan)),
      weights_(device, plan_.model.config, plan_.model.dtypes, "weights"),
      gradients_(device, plan_.model.config, DType::kF32, "gradients") {
  const TrainConfig& config = plan_.config;
  const fs::path& root = config.checkpoint.directory;
  make_writable_directory(root);
  lock_ = std::make_unique<DirectoryLock>(root);
  const std::optional<fs::path> newest = checkpoint_to_resume(root, resume);
  remove_unfinished_saves(root);

  state_.seed = static_cast<std::uint64_t>(config.training.seed);
  state_.numerics = plan_.numerics;
  state_.config = config_to_json(config);
  state_.data_digest = corpus_digest(*plan_.corpus);
  if (newest) {
    restore(*newest);
  } else {
    if (plan_.model.directory)
      plan_.model.directory->load(weights_);
    else
      initialize_random(weights_, plan_.model.config, state_.seed);
    optimizer_ =
        std::make_unique<Optimizer>(plan_.model.config, weights_, config.optimizer, plan_.state);
  }
  runner_ = std::make_unique<StepRunner>(plan_.model.config, weights_, gradients_, state_.numerics,
                                         plan_.step_options());
}

void Trainer::restore(const fs::path& directory) {
  const TrainState saved = read_checkpoint_state(directory);
  check_same_run(plan_, saved, directory);
  if (const std::string difference = describe_difference(plan_.numerics, saved.numerics);
      !difference.empty())
    log_warning(
        "this machine's arithmetic differs from the checkpoint's, so results will not repeat bit "
        "for bit ({})",
        difference);
  ModelDirectory::open(directory).load(weights_);
  optimizer_ = std::make_unique<Optimizer>(plan_.model.config, weights_, plan_.config.optimizer,
                                           plan_.state);
  load_optimizer(directory, weights_, *optimizer_);
  state_.step = saved_step_ = saved.step;
  state_.data_position = saved.data_position;
  // Everything a run may choose anew on another machine is replayed as it was.
  state_.numerics.head_block_rows = saved.numerics.head_block_rows;
  if (saved.numerics.device == plan_.numerics.device &&
      saved.numerics.kernels == plan_.numerics.kernels)
    state_.numerics.choices = saved.numerics.choices;
}

bool Trainer::run(const TrainCallbacks& callbacks) {
  const TrainConfig& config = plan_.config;
  try {
    if (state_.step < config.training.steps) {
      if (state_.numerics.choices.empty())
        state_.numerics.choices = runner_->choose_kernels(callbacks.should_stop);
      if (callbacks.on_start) callbacks.on_start();
    }
    while (state_.step < config.training.steps) {
      const StepReport report = step(callbacks);
      if (callbacks.on_step) callbacks.on_step(report);
      if (config.checkpoint.every > 0 && state_.step % config.checkpoint.every == 0)
        save(callbacks);
    }
  } catch (const Interrupted&) {
    save(callbacks);
    return false;
  } catch (const Error&) {
    save_if_possible(callbacks);
    throw;
  }
  save(callbacks);
  return true;
}

void Trainer::save_if_possible(const TrainCallbacks& callbacks) {
  if (updating_ || saving_ || state_.step == 0) return;
  try {
    save(callbacks);
  } catch (const Error& e) {
    log_warning("step {} could not be saved: {}", state_.step, e.what());
  }
}

void Trainer::save(const TrainCallbacks& callbacks) {
  if (saved_step_ == state_.step) return;
  const TraceSpan span(TraceTrack::kStep, {"save", state_.step});
  const CheckpointConfig& checkpoint = plan_.config.checkpoint;
  std::optional<fs::path> source;
  if (plan_.model.directory) source = plan_.model.directory->path();
  saving_ = true;
  const fs::path path = save_checkpoint(checkpoint.directory, state_, plan_.model.config, weights_,
                                        *optimizer_, source, checkpoint.keep);
  saved_step_ = state_.step;
  saving_ = false;
  if (callbacks.on_save) callbacks.on_save(path);
}

void Trainer::handle_nonfinite(StepReport& report, const std::string& where) {
  constexpr std::int64_t kMostInARow = 10;
  const std::string tensor = optimizer_->first_nonfinite(gradients_);
  std::string what = fmt::format("step {}: loss {}", report.step, report.loss);
  if (!where.empty()) what += ", " + where;
  what += fmt::format("; gradient norm {}", report.gradient_norm);
  if (!tensor.empty()) what += fmt::format(", not finite from {} on", tensor);
  const bool skip = plan_.config.training.nonfinite == "skip";
  if (skip && ++skipped_in_a_row_ <= kMostInARow) {
    log_warning("{}; the step is skipped and the weights stay as they were", what);
    report.skipped = true;
    return;
  }
  throw Error(what + (skip ? fmt::format("; {} steps in a row were skipped", kMostInARow)
                           : "; the weights were not updated"),
              "lower optimizer.learning_rate or set optimizer.clip_norm, and resume from the last "
              "checkpoint; training.nonfinite = \"skip\" passes over single bad steps");
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
                     1.0 / static_cast<double>(report.counted), callbacks.should_stop);
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
  const auto update_start = std::chrono::steady_clock::now();
  const TraceSpan update_span(compute_track(weights_.device().stream()), {"update"});
  report.gradient_norm = optimizer_->gradient_norm(gradients_);
  if (!std::isfinite(report.loss) || !std::isfinite(report.gradient_norm))
    handle_nonfinite(report, nonfinite);
  else
    skipped_in_a_row_ = 0;
  const double clip = config.optimizer.clip_norm;
  const double scale = clip > 0 && report.gradient_norm > clip ? clip / report.gradient_norm : 1.0;
  report.learning_rate = learning_rate_at(config.schedule, config.optimizer.learning_rate,
                                          report.step, config.training.steps);
  if (!report.skipped) {
    updating_ = true;
    optimizer_->update(gradients_, report.learning_rate, scale, report.step);
    updating_ = false;
  }
  report.update_s = seconds_since(update_start);

  state_.step = report.step;
  state_.data_position += config.training.batch;
  report.total_s = seconds_since(start);
  return report;
}

}  // namespace longstride
