#include "train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/process_memory.h"
#include "model/model_digest.h"
#include "tensor/stochastic_round.h"
#include "train/learning_rate.h"
#include "train/resume_point.h"
#include "train/run_data.h"
#include "train/sharded_state.h"
#include "train/step_trace.h"
#include "train/step_work.h"

namespace longstride {
namespace {

// Host memory for the copy of a save; a reserve always stays free. Processes of a host share it.
std::int64_t snapshot_budget(const CheckpointConfig& checkpoint, const Device& device,
                             std::int64_t on_host) {
  constexpr std::int64_t kReserve = std::int64_t{4} << 30;
  const std::int64_t free = device.available_host_bytes();
  const std::int64_t most = std::max<std::int64_t>(0, free - std::max(kReserve, free / 20));
  return (checkpoint.snapshot ? std::min(*checkpoint.snapshot, most) : most) / on_host;
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

Trainer::Trainer(RunPlan plan, Device& device, RunSinks sinks, comm::MessageLink* link,
                 comm::Link* tensors)
    : plan_(std::move(plan)),
      engine_(device, plan_.part.config, plan_.part.parameters),
      ranks_(plan_, device, link, tensors),
      sinks_(std::move(sinks)),
      saves_({.config = plan_.model.config,
              .side_files = plan_.model.side_files,
              .adapter = plan_.model.adapter ? &*plan_.model.adapter : nullptr,
              .parameters = plan_.model.specs},
             link) {
  const TrainConfig& config = plan_.config;
  const std::filesystem::path& root = config.checkpoint.directory;
  if (ranks_.is_first()) {
    make_writable_directory(root);
    lock_ = std::make_unique<DirectoryLock>(root);
    if (!plan_.resume) find_resume_point(root, {});  // another run may have saved since the plan
    if (plan_.resume && plan_.resume->named) set_aside_later_saves(root, *plan_.resume);
    remove_unfinished_saves(root);
  }

  plan_.worst_needs = ranks_.worst(plan_.needs);

  state_.seed = static_cast<std::uint64_t>(config.training.seed);
  state_.numerics = plan_.numerics;
  state_.config = config_to_json(config);
  state_.data_digest = data_digest(plan_);
  state_.drops_stub = plan_.drops_stub;
  if (plan_.model.adapter && plan_.model.directory)
    state_.model_digest = model_digest(*plan_.model.directory);
  timed("weights", [&] {
    if (plan_.model.directory)
      engine_.load(*plan_.model.directory);
    else
      engine_.initialize(state_.seed);
    if (plan_.model.adapter_source)
      engine_.load_adapters(*plan_.model.adapter_source);
    else if (plan_.model.adapter)
      engine_.start_adapters(state_.seed);
  });
  timed("optimizer", [&] {
    engine_.prepare_optimizer(config.optimizer, plan_.state, state_.seed);
    if (plan_.resume) restore();
  });
  timed("memory", [&] {
    engine_.prepare_step(part_numerics(), plan_.step.value(), ranks_.neighbours(),
                         ranks_.exchange());
    prepare_snapshots();
  });
}

void Trainer::prepare_snapshots() {
  const TrainConfig& config = plan_.config;
  if (config.checkpoint.every == 0 || config.checkpoint.every >= config.training.steps) return;
  // Processes that share a stage send each other parts of their files meanwhile.
  if (ranks_.same_stage() != nullptr) {
    if (config.checkpoint.snapshot)
      log_warning(
          "checkpoint.snapshot has no effect where processes share a stage: training waits for "
          "saves");
    return;
  }
  Device& device = engine_.device();
  snapshot_plan_ = plan_snapshot(engine_.weights(), engine_.optimizer(),
                                 snapshot_budget(config.checkpoint, device, plan_.place.on_host));
  // All save in the background, or none. Nobody allocates before all have seen what is free.
  if (ranks_.any(!snapshot_plan_)) return snapshot_plan_.reset();
  std::string problem;
  try {
    snapshot_memory_ = SaveSnapshot::allocate(device, *snapshot_plan_);
  } catch (const Error& e) {
    problem = e.what();
  }
  if (!ranks_.any(!problem.empty())) return;
  log_warning("training waits for its saves: {}",
              problem.empty() ? "a process has no memory for a copy" : problem);
  snapshot_plan_.reset();
  snapshot_memory_.reset();
}

NumericsRecord Trainer::part_numerics() const {
  NumericsRecord numerics = plan_.part.numerics;
  numerics.choices = state_.numerics.choices;
  return numerics;
}

SaveOutcome Trainer::save_now() {
  CheckpointTensors tensors = engine_.tensors();
  std::optional<ShardedState> shards;
  if (comm::Link* same_stage = ranks_.same_stage()) {
    shards.emplace(engine_.weights(), engine_.optimizer(), *same_stage);
    tensors.state = shards->tensors();
  }
  return saves_.save_now(save_job(), tensors, shards ? &*shards : nullptr);
}

void Trainer::timed(const std::string& what, const std::function<void()>& f) {
  tell([&](RunSink& sink) { sink.on_phase(what); });
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
  load_optimizer(plan_.resume->directory, engine_.weights(), engine_.optimizer());
  state_.step = saved_step_ = saved.step;
  // A killed process may have saved without removing the saves that the new one replaces.
  old_saves_are_due_ = true;
  state_.updates = saved.updates;
  state_.skipped_in_a_row = saved.skipped_in_a_row;
  state_.data_position = saved.data_position;
  if (saved.numerics.device == plan_.numerics.device &&
      saved.numerics.kernels == plan_.numerics.kernels)
    state_.numerics.choices = saved.numerics.choices;
}

bool Trainer::run(const RunControl& control) {
  const bool all_done = run_to_the_end(control);
  tell([](RunSink& sink) { sink.on_end(); });
  return all_done;
}

bool Trainer::run_to_the_end(const RunControl& control) {
  try {
    run_steps(control);
  } catch (const Interrupted&) {
    ranks_.settle_stop();
    settle(saves_.wait());
    if (!ranks_.any(control.leave_unsaved && control.leave_unsaved())) save_at_the_end();
    return false;
  } catch (const std::exception&) {
    // A process alone cannot save: the others do not know of its error yet.
    if (!ranks_.several() || all_fail_) save_if_possible();
    throw;
  }
  save_at_the_end();
  return true;
}

void Trainer::run_steps(const RunControl& control) {
  const TrainConfig& config = plan_.config;
  if (state_.step >= config.training.steps) return;
  if (state_.numerics.choices.empty())
    timed("kernels", [&] {
      const auto should_stop = ranks_.several() ? nullptr : control.should_stop;
      state_.numerics.choices = ranks_.share_choices(engine_.choose_kernels(should_stop));
      if (ranks_.several()) engine_.use_kernels(state_.numerics.choices);
    });
  tell([](RunSink& sink) { sink.on_start(); });
  if (state_.step == 0 && config.eval.every > 0) evaluate(control);
  while (state_.step < config.training.steps) {
    const StepReport report = step(control);
    settle(saves_.poll_together());
    tell([&](RunSink& sink) { sink.on_step(report); });
    if (plan_.eval_samples && (state_.step == config.training.steps ||
                               (config.eval.every > 0 && state_.step % config.eval.every == 0)))
      evaluate(control);
    // A later step was finite, so the last save is good.
    if (!report.skipped && saved_step_ < state_.step) remove_old_saves();
    const std::int64_t every = config.checkpoint.every;
    save_is_due_ = save_is_due_ || (every > 0 && state_.step % every == 0);
    // The save of a skipped step would replace a good one.
    if (save_is_due_ && state_.skipped_in_a_row == 0 && state_.step < config.training.steps)
      save_on_the_way();
  }
}

void Trainer::remove_old_saves() {
  if (!std::exchange(old_saves_are_due_, false) || !ranks_.is_first()) return;
  const CheckpointConfig& checkpoint = plan_.config.checkpoint;
  remove_old_checkpoints(checkpoint.directory, saved_step_, checkpoint.keep);
}

void Trainer::save_on_the_way() {
  save_is_due_ = false;
  settle(saves_.wait());
  const TraceSpan span(TraceTrack::kStep, {"save", state_.step});
  tell([](RunSink& sink) { sink.on_saving(true); });
  if (!snapshot_plan_) return settle(save_now());
  std::unique_ptr<SaveSnapshot> snapshot;
  std::exception_ptr failed;
  try {
    snapshot = std::make_unique<SaveSnapshot>(*snapshot_plan_, snapshot_memory_.get(),
                                              engine_.weights(), engine_.optimizer());
  } catch (const std::exception&) {
    failed = std::current_exception();
  }
  saves_.start(save_job(), std::move(snapshot), failed);
}

void Trainer::save_at_the_end() {
  settle(saves_.wait());
  if (state_.step == 0) return;
  if (saved_step_ != state_.step) {
    const TraceSpan span(TraceTrack::kStep, {"save", state_.step});
    tell([](RunSink& sink) { sink.on_saving(true); });
    settle(save_now(), true);
  }
  // The save of a skipped step must not replace a good one.
  if (state_.skipped_in_a_row == 0) remove_old_saves();
}

void Trainer::save_if_possible() {
  settle(saves_.wait());
  if (updating_ || state_.step == 0 || saved_step_ == state_.step) return;
  tell([](RunSink& sink) { sink.on_saving(true); });
  settle(save_now());
}

void Trainer::settle(const std::optional<SaveOutcome>& outcome, bool must_succeed) {
  if (!outcome) return;
  tell([](RunSink& sink) { sink.on_saving(false); });
  if (!outcome->error) {
    saved_step_ = outcome->step;
    old_saves_are_due_ = true;
    tell([&](RunSink& sink) { sink.on_save(outcome->path); });
    return;
  }
  try {
    std::rethrow_exception(outcome->error);
  } catch (const Error& e) {
    if (must_succeed) ranks_.throw_together(e);
    log_warning("step {} could not be saved: {}", outcome->step, e.what());
  } catch (const std::exception& e) {
    log_warning("step {} could not be saved: {}", outcome->step, e.what());
  }
}

void Trainer::handle_nonfinite(StepReport& report, const std::string& where) {
  constexpr std::int64_t kMostInARow = 10;
  const std::string tensor = ranks_.first_nonfinite(engine_.optimizer(), engine_.gradients());
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
  all_fail_ = true;
  ranks_.throw_together(Error(
      what + (skip ? fmt::format("; {} steps in a row were skipped", kMostInARow)
                   : "; the weights were not updated"),
      "lower optimizer.learning_rate or set optimizer.clip_norm, and resume from an earlier "
      "checkpoint (--resume=DIR); training.nonfinite = \"skip\" passes over single bad steps"));
}

Sample Trainer::next_sample(std::int64_t sequence, StepReport& report) {
  const TraceSpan span(TraceTrack::kStep, {"data", sequence});
  Sample sample = plan_.samples->sample(state_.data_position + sequence);
  for (const std::int64_t length : sample.document_lengths())
    report.document_lengths.push_back(length);
  return sample;
}

StepReport Trainer::step(const RunControl& control) {
  const auto start = std::chrono::steady_clock::now();
  const TrainConfig& config = plan_.config;
  StepReport report;
  report.step = state_.step + 1;
  report.total_steps = config.training.steps;
  const TraceSpan step_span(TraceTrack::kStep, {"step", report.step});
  const std::string nonfinite = run_sequences(report, control);
  if (!std::exchange(updated_, true) && control.before_first_update) control.before_first_update();
  saves_.wait_before_update();
  update(report, nonfinite);

  state_.step = report.step;
  state_.data_position += config.training.batch;
  report.samples = state_.data_position;
  report.epochs = static_cast<double>(state_.data_position) /
                  static_cast<double>(plan_.samples->samples_per_epoch());
  report.peak_rss = std::max(report.peak_rss, peak_resident_bytes());
  report.seconds.total = seconds_since(start);
  return report;
}

void Trainer::evaluate(const RunControl& control) {
  const auto start = std::chrono::steady_clock::now();
  const TraceSpan span(TraceTrack::kStep, {"evaluation", state_.step});
  const auto should_stop = [&] {
    settle(saves_.poll());
    return !ranks_.several() && control.should_stop && control.should_stop();
  };
  SampleStream& samples = *plan_.eval_samples;
  EvalReport report{.step = state_.step, .evaluation = {}};
  if (ranks_.is_last()) engine_.record_losses();
  const OnSequenceProgress on_progress = [&](const SequenceProgress& progress) {
    ranks_.before_task(progress, control);
  };
  const std::int64_t count = plan_.eval_count(), pipelines = ranks_.pipelines();
  for (std::int64_t first = 0; first < count; first += pipelines) {
    if (const std::int64_t own = first + ranks_.pipeline(); own < count) {
      const Sample sample = samples.sample(own);
      engine_.evaluate({sample.tokens, sample.targets, sample.document_starts}, should_stop,
                       ranks_.several() ? on_progress : nullptr);
    }
    ranks_.end_tasks();
    for (std::int64_t i = first; i < std::min(count, first + pipelines); ++i) {
      const Sample sample = samples.sample(i);
      const RunRanks::Losses all = ranks_.share_losses(engine_.runner(), sample.size(), i - first);
      report.evaluation.add(sample, all.losses, all.correct);
    }
  }
  report.seconds = seconds_since(start);
  tell([&](RunSink& sink) { sink.on_eval(report); });
}

std::string Trainer::run_sequences(StepReport& report, const RunControl& control) {
  const std::int64_t batch = plan_.config.training.batch;
  const auto should_stop = [&] {
    settle(saves_.poll());  // reported as soon as it has ended
    return !ranks_.several() && control.should_stop && control.should_stop();
  };
  // The loss is the mean over all targets of the step, so they are counted first; samples are read
  // one at a time, so that only one is held in memory.
  std::int64_t targets = 0;
  std::vector<std::int64_t> sizes;
  {
    const TraceSpan span(TraceTrack::kStep, {"targets"});
    for (std::int64_t i = 0; i < batch; ++i) {
      targets += plan_.samples->counted_targets(state_.data_position + i);
      sizes.push_back(plan_.samples->size_of(state_.data_position + i));
      report.tokens += sizes.back();
    }
  }
  std::vector<std::int64_t> own_sizes;  // of the sequences of this process
  for (std::int64_t round = 0; round < ranks_.rounds(); ++round)
    for (auto [i, end] = ranks_.sequences(round); i < end; ++i)
      own_sizes.push_back(sizes[static_cast<std::size_t>(i)]);
  const std::vector<double> begins =
      sequence_begins(engine_.config(), plan_.part.numerics, plan_.step->schedule, own_sizes);
  std::size_t begun = 0;  // of them
  const auto on_progress = [&](std::int64_t sequence) -> OnSequenceProgress {
    if (sinks_.empty() && !ranks_.several()) return nullptr;
    const double begin = begins[begun], share = begins[begun + 1] - begin;
    return [&, sequence, begin, share](const SequenceProgress& progress) {
      ranks_.before_task(progress, control);
      const StepProgress now{report.step, report.total_steps, sequence,
                             batch,       progress,           begin + share * progress.done};
      tell([&](RunSink& sink) { sink.on_progress(now); });
    };
  };

  std::string nonfinite;
  std::vector<RunRanks::Group> groups;
  for (std::int64_t round = 0; round < ranks_.rounds(); ++round) {
    engine_.zero_gradients();
    RunRanks::Group& group = groups.emplace_back();
    for (auto [sequence, end] = ranks_.sequences(round); sequence < end; ++sequence, ++begun) {
      const Sample sample = next_sample(sequence, report);
      const TraceSpan span(TraceTrack::kStep, {"sequence", sequence});
      const std::uint64_t rounding = mixed(mixed(state_.seed, report.step), sequence);
      const SequenceResult r =
          engine_.backward({sample.tokens, sample.targets, sample.document_starts, 0, rounding,
                            true, sample.weights},
                           1.0 / static_cast<double>(targets), should_stop, on_progress(sequence));
      report += r;
      group.loss_sum += r.loss_sum;
      group.correct += r.correct;
      if (r.nonfinite_chunk < 0 || !nonfinite.empty()) continue;
      group.nonfinite = sequence;
      nonfinite = fmt::format("first in chunk {} (from token {}) of sequence {}", r.nonfinite_chunk,
                              r.nonfinite_chunk * state_.numerics.chunk_tokens, sequence);
    }
    ranks_.end_tasks();
    ranks_.finish_round(engine_.gradients(), round);
  }
  ranks_.share_results(report, groups, nonfinite);
  report.targets = targets;
  report.loss = report.loss_sum / static_cast<double>(targets);
  return nonfinite;
}

void Trainer::update(StepReport& report, const std::string& nonfinite) {
  const TrainConfig& config = plan_.config;
  const auto start = std::chrono::steady_clock::now();
  const TraceSpan span(compute_track(engine_.device().stream()), {"update"});
  report.gradient_norm = ranks_.gradient_norm(engine_.optimizer(), engine_.gradients());
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
    engine_.update_shard(ranks_.gradients_of(engine_.optimizer(), engine_.gradients()),
                         report.learning_rate, scale, state_.updates + 1);
    ranks_.share_weights(engine_.weights());
    engine_.finish_update();
    updating_ = false;
    ++state_.updates;
  }
  report.seconds.update = seconds_since(start);
}

}  // namespace longstride
