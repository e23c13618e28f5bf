// longstride train CONFIG.toml [--section.key=value ...] [--dry-run] [--resume] [--trace FILE]
#include <atomic>
#include <csignal>
#include <filesystem>
#include <optional>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/sizes.h"
#include "base/thread_pool.h"
#include "cli/commands.h"
#include "cli/record.h"
#include "observe/metrics_file.h"
#include "observe/tracer.h"
#include "train/data_check.h"
#include "train/output_check.h"
#include "train/same_run.h"
#include "train/trainer.h"

namespace longstride::cli {
namespace {

std::atomic<int> stop_signal{0};

void ask_to_stop(int signal) { stop_signal = signal; }

// A second signal ends the process at once: handlers are for the first only.
void catch_stop_signals() {
  struct sigaction action {};
  action.sa_handler = ask_to_stop;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGHUP, &action, nullptr);
}

// "--a.b=c" and "--a.b c" as left over by the parser, to "a.b=c".
std::vector<std::string> overrides_from(const std::vector<std::string>& extras) {
  std::vector<std::string> result;
  for (std::size_t i = 0; i < extras.size(); ++i) {
    const std::string& word = extras[i];
    if (!word.starts_with("--") || word.find('.') == std::string::npos)
      throw Error(
          fmt::format("unexpected argument '{}'", word),
          "settings are given as --section.key=value; longstride train --help lists the options");
    std::string setting = word.substr(2);
    if (setting.find('=') == std::string::npos) {
      if (i + 1 == extras.size())
        throw Error(fmt::format("'{}' has no value", word), fmt::format("write {}=VALUE", word));
      setting += "=" + extras[++i];
    }
    result.push_back(setting);
  }
  return result;
}

struct Options {
  std::string config;
  bool dry_run = false, resume = false;
  std::string device, trace;
  std::int64_t trace_steps = 2;
};

// A trace that cannot be written is no reason to end a run.
void finish_trace(Tracer& tracer) {
  try {
    tracer.finish();
  } catch (const Error& e) {
    log_warning("trace: {}; the run goes on without it", e.what());
  }
}

int train(const Options& options, const std::vector<std::string>& extras) {
  std::optional<Tracer> tracer;
  if (!options.trace.empty()) tracer.emplace(options.trace);
  std::vector<std::string> overrides = overrides_from(extras);
  if (!options.device.empty()) overrides.push_back("device.name=" + options.device);
  const TrainConfig config = load_train_config(options.config, overrides);
  if (config.device.threads > 0) set_thread_count(static_cast<int>(config.device.threads));
  const std::unique_ptr<Device> device = make_device(config.device.name);
  RunPlan plan = plan_run(config, *device);
  if (options.dry_run) {
    const CorpusFacts facts = scan_data(plan);
    fmt::print(stderr, "{}", describe(plan, &facts));
    check_data(plan, facts);
  } else {
    fmt::print(stderr, "{}", describe(plan));
  }
  check_fits(plan);
  check_outputs(plan);
  if (options.dry_run) {
    if (const auto newest = checkpoint_to_resume(config.checkpoint.directory, options.resume))
      check_same_run(plan, read_checkpoint_state(*newest), *newest);
    log_info("dry run: everything checks out, nothing was written");
    return 0;
  }

  catch_stop_signals();
  DataScan scan(plan);
  Trainer trainer(std::move(plan), *device, options.resume);
  if (trainer.completed_steps() >= config.training.steps)
    log_info("{} of {} steps are done already", trainer.completed_steps(), config.training.steps);
  else if (trainer.completed_steps() > 0)
    log_info("resuming after step {}", trainer.completed_steps());
  else if (options.resume)
    log_info("no checkpoint in {}: the run begins", config.checkpoint.directory.string());
  MetricsFile metrics(config.metrics.file, trainer.completed_steps());
  TrainCallbacks callbacks;
  callbacks.should_stop = [] { return stop_signal != 0; };
  callbacks.before_first_update = [&] { scan.wait(callbacks.should_stop); };
  callbacks.on_save = [](const std::filesystem::path& path) {
    log_info("saved {}", path.string());
  };
  const std::int64_t last_traced = trainer.completed_steps() + options.trace_steps;
  callbacks.on_step = [&](const StepReport& report) {
    if (tracer && tracer->running() && report.step >= last_traced) finish_trace(*tracer);
    const StepRecord record = make_record(report, trainer.plan());
    metrics.append(record);
    log_info("{}", format_step_line(record));
  };
  if (tracer && trainer.completed_steps() >= config.training.steps)
    log_warning("trace: no step is left to run, so {} is not written", options.trace);
  callbacks.on_start = [&] {
    if (tracer) tracer->start(*device, "train " + options.config);
  };
  const bool all_done = trainer.run(callbacks);
  if (tracer && tracer->running()) finish_trace(*tracer);
  if (all_done) return 0;
  log_info("stopped by signal {} after step {}; go on with --resume", stop_signal.load(),
           trainer.completed_steps());
  return 128 + stop_signal;
}

}  // namespace

void add_train(CLI::App& app, Action& action) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "train", "train a model as a configuration file says (docs/configuration.md)");
  command->add_option("config", options->config, "TOML file")->required();
  command->add_flag("--dry-run", options->dry_run,
                    "check everything and show what the run will need, then stop");
  command->add_flag("--resume", options->resume,
                    "go on from the newest checkpoint of checkpoint.directory");
  command->add_option("--device", options->device, "the same as --device.name: auto, cpu or cuda");
  CLI::Option* trace = command->add_option(
      "--trace", options->trace,
      "write what ran when to this file, for ui.perfetto.dev; the traced steps are slower");
  command->add_option("--trace-steps", options->trace_steps, "the first steps, which are traced")
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
