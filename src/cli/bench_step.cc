// longstride bench step: one training step (forward and backward; optionally updates) of a built-in
// shape with random weights.
#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>

#include "base/error.h"
#include "base/log.h"
#include "base/process_memory.h"
#include "base/random.h"
#include "base/sizes.h"
#include "cli/bench_stage.h"
#include "cli/bench_step_plan.h"
#include "cli/bench_step_report.h"
#include "model/adapter_modules.h"
#include "model/fold_adapters.h"
#include "model/quantize_specs.h"
#include "observe/activity_summary.h"
#include "observe/run_console.h"
#include "observe/tracer.h"
#include "tensor/dtype_words.h"
#include "train/auto_chunk.h"

namespace longstride::cli {
namespace {

struct RandomSequence {
  std::vector<std::int32_t> tokens, targets;
  std::vector<std::int64_t> documents;
};

RandomSequence random_sequence(const StepBenchOptions& o, std::int64_t context,
                               std::int64_t vocabulary) {
  RandomSequence s;
  s.tokens.resize(static_cast<std::size_t>(context));
  s.targets.assign(s.tokens.size(), -100);
  Random random(1);
  // Topics come back after a long time, with the same few tokens: pages of a topic attend to each
  // other.
  constexpr std::size_t kTopicTokens = 2048;
  constexpr std::uint64_t kTopics = 64, kWords = 32;
  std::uint64_t topic = 0;
  for (std::size_t i = 0; i < s.tokens.size(); ++i) {
    std::uint64_t token = random.below(static_cast<std::uint64_t>(vocabulary));
    if (o.tokens == "topics") {
      if (i % kTopicTokens == 0) topic = random.below(kTopics);
      token = (topic * kWords + token % kWords) % static_cast<std::uint64_t>(vocabulary);
    }
    s.tokens[i] = static_cast<std::int32_t>(token);
  }
  std::copy(s.tokens.begin() + 1, s.tokens.end(), s.targets.begin());
  s.documents = document_starts(o, context);
  for (const std::int64_t start : s.documents)
    if (start > 0) s.targets[static_cast<std::size_t>(start - 1)] = -100;
  return s;
}

// One more run with every kernel recorded; null if the device has no recorder.
Json profile(Device& device, const std::function<void()>& run) {
  std::unique_ptr<ActivityRecorder> recorder = device.record_activity();
  if (!recorder) {
    log_warning("--profile: {} has no recorder here (on a GPU: libcupti.so.13 of the CUDA toolkit)",
                device.name());
    return {};
  }
  run();
  const ActivityLog log = recorder->finish();
  if (log.dropped > 0) log_warning("--profile: {} records were dropped", log.dropped);
  const ActivitySummary summary = summarize(log.activities);
  log_info("profile: {:.3f} s, the compute stream idle for {:.2f}% of it", summary.span_s,
           100 * summary.idle_share());
  for (std::size_t i = 0; i < std::min<std::size_t>(summary.rows.size(), 24); ++i) {
    const ActivitySummary::Row& row = summary.rows[i];
    log_info("{:>8.3f} s {:>5.1f}% {:>7} x, idle before them {:.4f} s  {}", row.seconds,
             100 * row.seconds / summary.span_s, row.calls, row.idle_before_s,
             row.name.substr(0, 150));
  }
  return Json::parse(dump_json(to_json(summary)));
}

DType weights_dtype(const StepBenchOptions& o, const Device& device) {
  if (o.dtype.empty()) return device.computes_in_bf16() ? DType::kBF16 : DType::kF32;
  return dtype_of_word(o.dtype).value();
}

// All of them are trained, but for quantized ones; or adapters on all projections.
std::vector<ParameterSpec> parameters_of(const StepBenchOptions& o, const ModelConfig& config,
                                         const Device& device) {
  std::vector<ParameterSpec> specs = parameter_specs(config, weights_dtype(o, device));
  if (!o.quantize.empty())
    quantize_projections(specs, format_of_word(o.quantize).value(), "--quantize");
  if (o.lora > 0) {
    AdapterConfig adapter{.rank = o.lora, .alpha = 2.0 * static_cast<double>(o.lora)};
    for (const std::string_view target : adapter_targets(config))
      adapter.targets.emplace_back(target);
    add_adapters(specs, adapter, config, compute_type(device, o.numerics.compute));
  }
  sum_head_apart(specs);
  return specs;
}

// A GPU needs larger products, and computes in the type of the weights.
NumericsRecord numerics_of(const StepBenchOptions& o, Device& device, const BenchShape& shape) {
  NumericsChoice choice = o.numerics;
  choice.sparse = shape.sparse;
  choice.quantize = o.quantize;
  const std::int64_t page = parse_size(o.page, "--page");
  constexpr std::int64_t kMostPage = 65536;  // as training.page
  if (page < 1 || page > kMostPage)
    throw Error(fmt::format("--page is {}", o.page),
                fmt::format("give 1 to {} tokens: 128, for instance", kMostPage));
  const std::vector<ParameterSpec> parameters = parameters_of(o, shape.config, device);
  choice.tied_apart = sums_head_apart(parameters);
  const std::string word = !o.chunk.empty()            ? o.chunk
                           : o.plan == "auto"          ? "auto"
                           : device.computes_in_bf16() ? "4096"
                                                       : "1024";
  const std::int64_t chunk =
      word == "auto"
          ? auto_chunk({shape.config, parameters, choice, parse_size(o.context, "--context"), page},
                       device)
          : parse_size(word, "--chunk");
  return choose_numerics(device, shape.config, chunk, page, choice);
}

using StepFunction = std::function<SequenceResult(const OnSequenceProgress&)>;

// Runs the step `repeat` times, each of which fills `task_seconds` if it measures them, and keeps
// the results of the fastest run, or of the traced one.
void measure(const StepBenchOptions& o, Engine& engine, std::optional<Tracer>& tracer,
             const StepFunction& step, const std::vector<double>& task_seconds,
             StepBenchResult& best) {
  Device& device = engine.device();
  RunConsole console;  // a long run shows where it is
  for (std::int64_t i = 0; i < o.repeat; ++i) {
    engine.zero_gradients();
    device.stream().synchronize();
    const bool traced = tracer && i + 1 == o.repeat;
    if (traced) tracer->start(device, fmt::format("bench step {} {}", o.preset, best.context));
    const auto start = std::chrono::steady_clock::now();
    const CpuTime before = cpu_time();
    const SequenceResult result = step([&](const SequenceProgress& p) {
      console.update({.step = i + 1,
                      .total_steps = o.repeat,
                      .phase = p.phase,
                      .chunk = p.chunk,
                      .chunks = p.chunks,
                      .done = p.done});
    });
    const CpuTime after = cpu_time();
    if (i == 0) best.used_after_first = device.used_bytes();
    const double total =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    console.end_step(fmt::format("run {}/{}: {:.4g} s", i + 1, o.repeat, total));
    if (i > 0 && !traced && total >= best.total) continue;
    best.total = total;
    best.result = result;
    best.task_seconds = task_seconds;
    best.cpu = {after.process_s - before.process_s, after.thread_s - before.thread_s};
  }
  best.peak_rss = peak_resident_bytes();
  best.traced = tracer.has_value();
  if (tracer) tracer->finish();
}

int bench_step(const StepBenchOptions& o) {
  check_options(o);
  check_bench_json(o.json);
  std::optional<Tracer> tracer;
  if (!o.trace.empty()) tracer.emplace(o.trace);
  const BenchShape shape = shape_of(o);
  const std::int64_t context = parse_size(o.context, "--context");
  if (context < 2) throw Error(fmt::format("--context is {}", context), "give at least 2 tokens");
  const std::unique_ptr<Device> device = make_device(o.device);
  const StageParts parts = stage_of(o, shape.config, parameters_of(o, shape.config, *device),
                                    numerics_of(o, *device, shape), context);
  const ModelConfig& config = parts.config;
  const NumericsRecord& numerics = parts.numerics;
  const StepOptions options{.max_tokens = context,
                            .keep_chunks = o.keep_chunks,
                            .within_episode = within_episode(o.rebuild_feed_forward),
                            .packed = document_starts(o, context).size() > 1,
                            .stage = parts.stage};
  Engine engine(*device, config, parts.parameters);
  check_context(o, engine, numerics, options);
  engine.initialize_repeatedly(0);
  if (o.lora > 0) engine.start_adapters(0);
  engine.zero_gradients();
  const RandomSequence sequence = random_sequence(o, context, config.vocabulary);

  StepBenchResult best;
  best.context = context;
  best.documents = sequence.documents;
  best.baseline_rss = resident_bytes();
  best.own_peak = reset_peak_resident_bytes();
  reserve_libraries(*device, config, numerics, context);  // the plan may have what they leave
  PlannedStep planned = plan_of(o, engine, numerics, options);
  best.saved_flops = planned.saved_flops;
  const std::unique_ptr<Neighbours> neighbours = noise_neighbours(parts, *device, context);
  engine.prepare_step(numerics, std::move(planned.plan), neighbours.get());
  warn_of_unused(o, engine.memory());
  best.record = numerics;
  best.numerics = to_json(numerics);
  best.numerics["choices"] = engine.choose_kernels();
  std::vector<double> task_seconds;
  const auto step = [&](const OnSequenceProgress& on_progress) {
    SequenceInput input{sequence.tokens, sequence.targets, sequence.documents};
    if (o.stages > 1) input.task_seconds = &task_seconds;
    const SequenceResult result =
        engine.backward(input, 1.0 / static_cast<double>(context - std::ssize(sequence.documents)),
                        nullptr, on_progress);
    engine.finish_gradients();
    return result;
  };
  measure(o, engine, tracer, step, task_seconds, best);
  OrderedJson json = report_step(o, engine, best);
  if (tracer) log_info("the figures are those of the traced run, which tracing makes slower");
  if (o.profile) json["profile"] = profile(*device, [&] { step(nullptr); });
  // Last, since it takes memory beyond the step's and changes the weights.
  if (o.updates > 0) json["update"] = bench_update(engine, update_of(o, engine.memory()));
  return write_bench_json(o.json, json);
}

}  // namespace

void add_bench_step(CLI::App& bench, Action& action) {
  auto o = std::make_shared<StepBenchOptions>();
  CLI::App* command = bench.add_subcommand(
      "step", "one forward and backward pass of a built-in shape with random weights");
  add_options(*command, o);
  command->callback([o, &action] { action = [o] { return bench_step(*o); }; });
}

}  // namespace longstride::cli
