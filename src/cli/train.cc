// longstride train CONFIG.toml [--section.key=value ...] [--dry-run] [--resume[=DIR]]
// [--trace FILE]
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>
#include <vector>

#include "api/record_sink.h"
#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/sizes.h"
#include "cli/commands.h"
#include "cli/config_words.h"
#include "cli/dry_run_ranks.h"
#include "cli/run_sinks.h"
#include "cli/stop_signals.h"
#include "cli/train_ranks.h"
#include "plan/this_machine.h"
#include "train/data_check.h"
#include "train/describe_plan.h"
#include "train/outlook.h"
#include "train/output_check.h"
#include "train/shared_plan.h"
#include "train/trainer.h"

namespace longstride::cli {
namespace {

ConfigWords words_of(const std::vector<std::string>& extras) {
  ConfigWords words = sort_words(extras, "train");
  if (words.config.empty())
    throw Error("no configuration file is given",
                "write longstride train CONFIG.toml; docs/configuration.md describes the file");
  return words;
}

struct Options {
  bool dry_run = false;
  std::string resume;  // empty: no; "true": the newest; else a checkpoint's directory
  std::string device, trace, svg;
  std::int64_t trace_steps = 2;
  std::int64_t ranks = 0;                  // of a dry run; 0: not given
  std::string config;                      // the file
  std::vector<std::string> settings = {};  // beside it: "a.b=c"
  std::string title;                       // of the trace

  // What all processes must be given alike, beside the configuration.
  std::string text() const {
    return fmt::format("{}\n{}\n{}\n{}", dry_run, resume, trace, trace_steps);
  }
  ResumeChoice resume_choice() const {
    if (resume.empty()) return {};
    return {true, resume == "true" ? "" : resume};
  }
};

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Logs where the run begins, and a hint if there is nothing left to do.
void tell_beginning(const Trainer& trainer, const Options& options) {
  const TrainConfig& config = trainer.plan().config;
  const std::int64_t done = trainer.completed_steps(), steps = config.training.steps;
  if (done >= steps)
    log_info("{} of {} steps are done already; to go on, set training.steps higher than {}", done,
             steps, done);
  else if (done > 0)
    log_info("resuming after step {}", done);
  else if (!options.resume.empty())
    log_info("no checkpoint in {}: the run begins", config.checkpoint.directory.string());
}

int stopped(const Trainer& trainer, bool several) {
  const int signal = several ? trainer.stop_signal() : StopSignals::received();
  if (trainer.completed_steps() == 0)
    log_info("stopped by signal {} before the first update: there is nothing to save", signal);
  else if (trainer.saved_step() < trainer.completed_steps())
    log_info("stopped by signal {}; the last save is that of step {}", signal,
             std::max<std::int64_t>(trainer.saved_step(), 0));
  else
    log_info("stopped by signal {} after step {}; go on with --resume", signal,
             trainer.completed_steps());
  return 128 + signal;
}

struct Planning {
  double seconds = 0;                  // that it took
  std::optional<double> step_seconds;  // predicted
};

// What the run should have allocated; on a device that is host memory, all that is there too.
std::int64_t planned_bytes(const Trainer& trainer, const Device& device) {
  const RunNeeds& needs = trainer.plan().needs;
  const std::int64_t on_device = needs.total() + Optimizer::kNormBytes;
  if (!device.shares_host_memory()) return on_device;
  return on_device + needs.host_total() + trainer.snapshot_bytes();
}

void add_trace(std::optional<TraceSink>& sink, Trainer& trainer, const Options& options,
               Device& device, std::optional<Tracer>& tracer) {
  if (!tracer) return;
  sink.emplace(*tracer, device, options.title, trainer.completed_steps() + options.trace_steps);
  trainer.add_sink(*sink);
}

// What ranks other than the first do: they compute, and tell nobody.
int run_quietly(const Options& options, RunPlan planned, Device& device, const RunControl& control,
                std::optional<Tracer>& tracer, comm::MessageLink& link, comm::Link* tensors) {
  SaveSink saves;
  Trainer trainer(std::move(planned), device, {&saves}, &link, tensors);
  std::optional<TraceSink> trace;
  add_trace(trace, trainer, options, device, tracer);
  if (!trainer.run(control)) return stopped(trainer, true);
  tell_allocated(planned_bytes(trainer, device), device, link);
  return 0;
}

int run_training(const Options& options, RunPlan planned, Device& device, const Planning& planning,
                 std::optional<Tracer>& tracer, comm::MessageLink* link, comm::Link* tensors) {
  const StopSignals signals(link == nullptr || link->rank() == 0);
  RunControl control;
  control.should_stop = [] { return StopSignals::received() != 0; };
  control.stop_signal = StopSignals::received;
  control.leave_unsaved = StopSignals::wants_to_leave;
  if (link != nullptr && link->rank() != 0)
    return run_quietly(options, std::move(planned), device, control, tracer, *link, tensors);
  ConsoleSink console;
  SaveSink saves;
  DataScan scan(planned);
  Trainer trainer(std::move(planned), device, {&console, &saves}, link, tensors);
  const std::int64_t begin_step = trainer.completed_steps(),
                     steps = trainer.plan().config.training.steps;
  tell_beginning(trainer, options);
  if (tracer && begin_step >= steps)
    log_warning("trace: no step is left to run, so {} is not written", options.trace);
  StartTimesSink start_times(trainer, planning.seconds);
  api::RecordSink records(trainer.plan(), begin_step, console.lines());
  std::optional<TraceSink> trace;
  trainer.add_sink(start_times);
  add_trace(trace, trainer, options, device, tracer);
  trainer.add_sink(records);
  PlannedSink planned_and_measured(device, planning.step_seconds, planned_bytes(trainer, device));
  trainer.add_sink(planned_and_measured);

  control.before_first_update = [&] { scan.wait(control.should_stop); };
  if (!trainer.run(control)) return stopped(trainer, link != nullptr);
  planned_and_measured.finish();
  if (link != nullptr) tell_allocated(planned_bytes(trainer, device), device, *link);
  return 0;
}

// Logs which layers each process has.
void tell_stages(const RunPlan& plan, comm::MessageLink& link) {
  for (int rank = 0; rank < link.size(); ++rank) {
    const RankPlace place =
        RankPlace::of_rank(rank, link.size(), plan.place.stages, plan.place.heads);
    const auto at = static_cast<std::size_t>(place.stage);
    const HeadShare heads = place.head_share();
    log_info("rank {} on {}: layers {} to {}{}", rank, link.host(rank), plan.cuts[at],
             plan.cuts[at + 1] - 1,
             heads.several() ? fmt::format(", heads {} of {}", heads.rank + 1, heads.ranks) : "");
  }
}

int dry_run_done() {
  log_info("dry run: everything checks out, nothing was written");
  return 0;
}

int train_as(const Options& options, const TrainConfig& config, comm::MessageLink* link) {
  if (link != nullptr && options.ranks > 0)
    throw Error(
        fmt::format("--ranks {} is for a plan without a launcher, and there are {} processes",
                    options.ranks, link->size()),
        "leave it out, or start one process");
  std::optional<Tracer> tracer;
  if (!options.trace.empty()) tracer.emplace(options.trace, link);
  const auto begin = std::chrono::steady_clock::now();
  RankDevice rank = open_rank_device(config, options.text(), link);
  Device& device = *rank.device;
  // Before the plan: NCCL takes memory of its own.
  TensorLink tensors = open_tensor_link(config, rank, link);
  rank.place.direct = tensors.link != nullptr;
  if (options.ranks > 0) {
    dry_run_on_ranks(config, device, options.ranks, options.config, options.settings, options.svg);
    return dry_run_done();
  }
  RunPlan plan = plan_run(
      config, device,
      find_resume_point_together(config.checkpoint.directory, options.resume_choice(), link),
      rank.place);
  if (link != nullptr) share_step_plan(plan, *link);
  const MachineRates rates = rates_of_this_machine(device);
  // Of a stage alone it would mean little.
  const std::optional<double> step_seconds =
      link == nullptr ? predict_training_step(plan, rates) : std::nullopt;
  std::optional<PredictedStep> predicted;
  if (step_seconds) predicted = {*step_seconds, !rates.measured};
  if (link != nullptr) tell_stages(plan, *link);
  if (options.dry_run) {
    const CorpusFacts facts = scan_data(plan);
    log_text(describe(plan, facts, predicted));
    check_data(plan, facts);
  } else {
    log_text(summarize(plan, predicted));
  }
  check_fits(plan);
  if (link == nullptr || link->rank() == 0) check_outputs(plan);
  if (options.dry_run) return dry_run_done();
  check_all_see(config.checkpoint.directory, link);
  const int status =
      run_training(options, std::move(plan), device, {seconds_since(begin), step_seconds}, tracer,
                   link, tensors.link.get());
  if (tensors.link) tensors.link->close();
  return status;
}

int train(Options options, const std::vector<std::string>& extras) {
  ConfigWords words = words_of(extras);
  options.config = words.config;
  options.settings = words.overrides;
  options.title = "train " + words.config;
  if (!options.device.empty()) words.overrides.push_back("device.name=" + options.device);
  return run_train([&] { return load_train_config(words.config, words.overrides); },
                   [&](const TrainConfig& config, comm::MessageLink* link) {
                     return train_as(options, config, link);
                   },
                   options.ranks > 0);
}

}  // namespace

void add_train(CLI::App& app, Action& action) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("train",
                         "train CONFIG.toml: train a model as a configuration file says "
                         "(docs/configuration.md)");
  CLI::Option* dry_run = command->add_flag(
      "--dry-run", options->dry_run, "check everything and show what the run will need, then stop");
  CLI::Option* resume = command->add_flag(
      "--resume", options->resume,
      "go on from the newest checkpoint of checkpoint.directory, or with --resume=DIR "
      "from that one");
  CLI::Option* ranks = command->add_option(
      "--ranks", options->ranks,
      "with --dry-run: show what so many processes would do, without a launcher");
  ranks->check(CLI::Range(1, 4096))->needs(dry_run)->excludes(resume);
  command->add_option("--svg", options->svg, "with --ranks: draw their schedule into this file")
      ->needs(ranks);
  command->add_option("--device", options->device, "the same as --device.name: auto, cpu or cuda");
  CLI::Option* trace = command->add_option(
      "--trace", options->trace,
      "write what ran when to this file, for ui.perfetto.dev; the traced steps are slower");
  command->add_option("--trace-steps", options->trace_steps, "how many of the first steps to trace")
      ->check(CLI::PositiveNumber)
      ->needs(trace)
      ->capture_default_str();
  command->allow_extras();
  command->footer(
      "Any setting of the file can be given as --section.key=value, for instance "
      "--training.steps=10.");
  command->callback([options, command, &action] {
    action = [options, command] { return train(*options, command->remaining()); };
  });
}

}  // namespace longstride::cli
