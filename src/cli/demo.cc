// longstride demo: trains a small model to recall facts from thousands of tokens back, then shows
// the memory of one step at growing contexts.
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <memory>

#include "api/record_sink.h"
#include "base/error.h"
#include "base/files.h"
#include "base/process_memory.h"
#include "base/random.h"
#include "base/sizes.h"
#include "base/thread_pool.h"
#include "cli/commands.h"
#include "cli/demo_task.h"
#include "cli/recall_goal.h"
#include "cli/run_sinks.h"
#include "cli/suggest.h"
#include "observe/progress_bar.h"
#include "train/trainer.h"

namespace longstride::cli {
namespace {

namespace fs = std::filesystem;

struct Options {
  std::string out = "demo-out";
  std::int64_t steps = 300, seed = 1;
  RecallTask task;
  double learning_rate = 3e-3;
  bool skip_contexts = false;
};

// Paths are relative to `out`, where the configuration file is written.
TrainConfig demo_config(const fs::path& out, const RecallTask& task, const RecallData& data,
                        const Options& o) {
  TrainConfig c;
  c.model.path = "start";
  c.data.path = {data.tokens.lexically_relative(out)};
  c.data.document_index = data.document_index.lexically_relative(out);
  c.data.loss_mask = data.loss_mask.lexically_relative(out);
  c.data.shuffle = false;
  c.training.context = task.context;
  c.training.chunk = 1024;
  c.training.steps = o.steps;
  c.training.seed = o.seed;
  c.optimizer.learning_rate = o.learning_rate;
  c.optimizer.weight_decay = 0.01;
  c.schedule.warmup_steps = std::min<std::int64_t>(20, o.steps);
  c.checkpoint.directory = "run";
  c.metrics.file = fs::path("run") / "metrics.jsonl";
  c.device.name = "cpu";
  validate(c);
  return c;
}

struct Trained {
  fs::path saved;
  std::int64_t steps = 0;
  RecallGoal goal;  // over the steps with documents as long as the context
};

// Prints the model's recall, and ends the run when the goal is reached.
class RecallSink final : public RunSink {
 public:
  RecallSink(const RecallTask& task, std::int64_t steps)
      : task_(task), steps_(steps), every_(std::max<std::int64_t>(1, steps / 15)), bar_(steps) {}

  void on_step(const StepReport& report) override {
    const std::int64_t now = document_length(task_, report.step - 1, steps_);
    if (now != length_) bar_.print_line(fmt::format("  documents of {} tokens", now));
    length_ = now;
    if (length_ == task_.context) trained_.goal.add_step(report.correct, report.targets);
    trained_.steps = report.step;
    const std::string text = fmt::format("loss {:.3f}  recall {:3.0f}%  {:.0f} tokens/s",
                                         report.loss, 100 * report.accuracy(),
                                         static_cast<double>(report.tokens) / report.seconds.total);
    if (report.step == 1 || report.step % every_ == 0 || trained_.goal.reached())
      bar_.print_line(fmt::format("  step {:>4}   {}", report.step, text));
    // Elsewhere the lines above are enough.
    if (::isatty(STDERR_FILENO) == 1) bar_.update(report.step, text);
  }
  void on_save(const fs::path& path) override { trained_.saved = path; }
  void on_end() override { bar_.finish(); }

  const Trained& trained() const { return trained_; }

 private:
  const RecallTask& task_;
  std::int64_t steps_, every_, length_ = 0;
  ProgressBar bar_;
  Trained trained_;
};

Trained train_recall(const TrainConfig& config, const RecallTask& task, Device& device) {
  RecallSink recall(task, config.training.steps);
  Trainer trainer(plan_run(config, device), device, {&recall});
  api::RecordSink records(trainer.plan(), 0, [](const std::string&) {});
  trainer.add_sink(records);
  trainer.run({.should_stop = [&] { return recall.trained().goal.reached(); }});
  return recall.trained();
}

void show_outcome(const Trained& trained, const RecallTask& task) {
  const RecallGoal& goal = trained.goal;
  if (goal.reached())
    fmt::print("\nLearnt after {} steps: {:.1f}% of the answers", trained.steps,
               100 * goal.recall());
  else if (goal.steps() > 0)
    fmt::print("\nNot learnt in {} steps (--steps gives it more): {:.1f}% of the answers",
               trained.steps, 100 * goal.recall());
  else
    return;  // never saw documents of that length
  fmt::print(
      " in the last {} steps are right, each in a document\nof {} tokens that was new to it.\n",
      goal.steps(), task.context);
  std::fflush(stdout);
}

struct ContextRow {
  std::int64_t context = 0, window = 0;
};

// Measured memory of one step, and the memory of the same step with the whole sequence as one
// chunk.
void show_context(const ModelConfig& trained, const ContextRow& row, std::int64_t chunk,
                  Device& device) {
  ModelConfig config = trained;
  config.windows.assign(static_cast<std::size_t>(config.layers), row.window);
  const std::vector<ParameterSpec> parameters = parameter_specs(config, DType::kF32);
  Engine engine(device, config, parameters);
  engine.initialize(0);
  engine.zero_gradients();
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(row.context)),
      targets(tokens.size(), -100);
  Random random(2);
  for (std::int32_t& t : tokens)
    t = static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(config.vocabulary)));
  std::copy(tokens.begin() + 1, tokens.end(), targets.begin());
  const std::vector<std::int64_t> documents = {0};

  const NumericsRecord numerics = choose_numerics(device, config, chunk, 128),
                       whole = choose_numerics(device, config, row.context, 128);
  const StepMemory without_chunks =
      plan_step(device, config, parameters, whole, {.max_tokens = row.context}).memory;
  const std::int64_t before = resident_bytes();
  reset_peak_resident_bytes();
  engine.prepare_step(numerics, engine.planner(numerics, {.max_tokens = row.context}).plan({}));
  const SequenceResult r =
      engine.backward({tokens, targets, documents}, 1.0 / static_cast<double>(row.context - 1));
  const std::int64_t measured = peak_resident_bytes() - before;
  const double seconds = r.seconds.forward + r.seconds.recompute + r.seconds.backward;
  const auto bytes = [](std::int64_t b) { return format_bytes(static_cast<double>(b)); };
  fmt::print("  {:>7}   {:<12} {:>7.1f} s   {:>11}   {:>11}   {:>11}   {:>13}\n",
             format_count(row.context),
             row.window == 0 ? "dense" : "window " + format_count(row.window), seconds,
             bytes(engine.memory().workspace),
             bytes(engine.memory().kv_pages + engine.memory().kv_gradient_pages), bytes(measured),
             bytes(without_chunks.total()));
  std::fflush(stdout);
}

int demo(const Options& o) {
  const fs::path out = o.out;
  if (fs::exists(out / "run"))
    throw Error(fmt::format("{} exists already", (out / "run").string()),
                "remove it, or choose another place with --out");
  const RecallTask& task = o.task;
  const std::unique_ptr<Device> device = make_device("cpu");

  fmt::print(
      "Training a small model to recall facts.\n"
      "Each sequence states {} facts, then {} tokens of noise, then asks {} questions: the answers "
      "lie\n"
      "1,000 to {} tokens back. Chance is {:.0f}%. It runs in chunks of 1024 tokens, exactly as if "
      "at once.\n"
      "Documents grow: a sequence holds {} short ones at first, so that looking facts up is "
      "learned "
      "before\n"
      "looking far. Where they get longer, recall may fall for some steps.\n\n",
      task.keys, task.context - task.keys - 2 * task.questions(task.context),
      task.questions(task.context), task.context, 100.0 / static_cast<double>(task.values),
      task.context / document_length(task, 0, o.steps));
  std::fflush(stdout);
  make_writable_directory(out);
  write_recall_model(out / "start", task, static_cast<std::uint64_t>(o.seed));
  const RecallData data =
      write_recall_data(out / "data", task, o.steps, static_cast<std::uint64_t>(o.seed));
  write_file_atomic(out / "demo.toml", config_to_toml(demo_config(out, task, data, o)));
  const TrainConfig config =
      load_train_config(out / "demo.toml", {});  // as `train` will read it to continue
  const Trained trained = train_recall(config, task, *device);
  show_outcome(trained, task);

  if (!o.skip_contexts) {
    fmt::print(
        "\nOne step of the same model at longer contexts (memory beyond weights and gradients):\n\n"
        "  {:>7}   {:<12} {:>9}   {:>11}   {:>11}   {:>11}   {:>13}\n",
        "context", "attention", "time", "workspace", "KV pages", "measured", "whole at once");
    const ModelConfig model = ModelDirectory::open(trained.saved).config();
    for (const ContextRow& row : {ContextRow{4096, 0}, {16384, 0}, {65536, 4096}})
      show_context(model, row, *config.training.chunk, *device);
    fmt::print(
        "\n  measured: peak resident memory of the step.  whole at once: what the same step needs "
        "with the sequence\n"
        "  in one chunk. The workspace stays the same at any context; what grows is pages of keys "
        "and values.\n");
  }
  const std::string program = program_word(), saved = shell_word(trained.saved.string());
  fmt::print(
      "\nThe trained model, a Hugging Face directory:  {}\n\nTry next:\n"
      "  {} inspect {}\n"
      "  {} train {} --resume --training.steps={}\n",
      trained.saved.string(), program, saved, program, shell_word((out / "demo.toml").string()),
      trained.steps + 20);
  if (const std::optional<std::string> example = example_word("tiny.toml"))
    fmt::print("  {} train {} --dry-run\n", program, *example);
  return 0;
}

}  // namespace

void add_demo(CLI::App& app, Action& action) {
  auto o = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "demo", "train a small model on a recall task and show memory at growing contexts");
  command->add_option("--out", o->out, "directory for everything it writes")->capture_default_str();
  command->add_option("--steps", o->steps, "training steps")
      ->check(CLI::Range(1, 100'000))  // the data of all steps are written first
      ->capture_default_str();
  command->add_option("--seed", o->seed, "of weights and data")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_option("--keys", o->task.keys, "facts of a sequence")
      ->check(CLI::Range(1, 512))
      ->capture_default_str();
  command->add_option("--values", o->task.values, "different answers")
      ->check(CLI::Range(2, 64))
      ->capture_default_str();
  command->add_option("--learning-rate", o->learning_rate)
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_flag("--skip-contexts", o->skip_contexts, "leave out the table of contexts");
  command->callback([o, &action] { action = [o] { return demo(*o); }; });
}

}  // namespace longstride::cli
