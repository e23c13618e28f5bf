// longstride bench step: one training step (forward and backward; updates where asked for) of a
// built-in shape with random weights.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/random.h"
#include "base/sizes.h"
#include "base/thread_pool.h"
#include "cli/bench.h"
#include "cli/bench_update.h"
#include "cli/record.h"
#include "cli/usage.h"
#include "model/presets.h"
#include "observe/activity_summary.h"
#include "observe/cpu_time.h"
#include "observe/flops.h"
#include "observe/process_memory.h"
#include "observe/tracer.h"
#include "train/step.h"

namespace longstride::cli {
namespace {

struct Options {
  std::string preset, context, document, chunk, page = "128", attention = "dense", window, dtype,
                                                json, device = "auto", page_memory, host_memory,
                                                disk_memory, disk_path, optimizer, trace;
  std::int64_t layers = 0, repeat = 1, keep_chunks = 1, updates = 0;
  bool rebuild_feed_forward = false, profile = false;
  NumericsChoice numerics;
};

ModelConfig shape_of(const Options& o) {
  ModelConfig config = find_preset(o.preset);
  if (o.layers > config.layers)
    throw Error(fmt::format("--layers is {}, but {} has {}", o.layers, o.preset, config.layers),
                "leave it out to use all of them");
  if (o.layers > 0) config.layers = o.layers;
  std::int64_t window = 0;
  if (o.attention == "window") {
    if (o.window.empty())
      throw Error("--attention window needs its size",
                  "add --window TOKENS, for instance --window 1024");
    window = parse_size(o.window, "--window");
    if (window < 1) throw Error("--window is 0", "a query sees at least itself: give 1 or more");
  } else if (!o.window.empty()) {
    throw Error("--window without --attention window", "add --attention window");
  }
  config.windows.assign(static_cast<std::size_t>(config.layers), window);
  return config;
}

// Bytes, or what the words stand for: "least" is what the step needs, "streaming" what it takes to
// move pages beside the arithmetic.
std::int64_t page_memory(const Options& o, DeviceKind runs_on, const ModelConfig& config,
                         const NumericsRecord& numerics, std::int64_t context) {
  if (o.page_memory != "least" && o.page_memory != "streaming") {
    try {
      return parse_size(o.page_memory, "--page-memory");
    } catch (const Error& e) {
      throw Error(e.what(), e.hint() + "; or least, or streaming");
    }
  }
  const SequenceLayout layout{context, numerics.chunk_tokens, numerics.page_tokens, {0}};
  ScheduleOptions options = schedule_options(runs_on, config, numerics, o.keep_chunks);
  options.packed = !o.document.empty();
  const StepSchedule schedule = make_step_schedule(layout, options);
  const auto bytes = o.page_memory == "least" ? least_device_bytes : streaming_device_bytes;
  return bytes(layout, schedule, kv_shape(config, numerics));
}

std::optional<std::int64_t> disk_memory(const Options& o) {
  if (o.disk_memory.empty()) return std::nullopt;
  return parse_size(o.disk_memory, "--disk-memory");
}

PageBudget pages_of(const Options& o, DeviceKind runs_on, const ModelConfig& config,
                    const NumericsRecord& numerics, std::int64_t context) {
  if (o.page_memory.empty()) return {};
  PageBudget pages{page_memory(o, runs_on, config, numerics, context),
                   o.host_memory.empty() ? std::int64_t{PageBudget::kAll}
                                         : parse_size(o.host_memory, "--host-memory"),
                   disk_memory(o).value_or(0), o.disk_path};
  if (pages.disk > 0 && o.disk_path.empty())
    throw Error("--disk-memory without --disk-path", "name a directory on a local disk");
  return pages;
}

// Where the optimizer's state goes, beside the pages of the step.
UpdateBench update_of(const Options& o, const StepMemory& step) {
  UpdateBench update{o.updates, o.optimizer.empty() ? "device" : o.optimizer};
  update.state.place = o.optimizer == "disk"   ? StatePlace::kDisk
                       : o.optimizer == "host" ? StatePlace::kHost
                                               : StatePlace::kDevice;
  if (o.optimizer != "disk") return update;
  update.state.disk_directory = o.disk_path;
  if (!o.host_memory.empty())
    update.state.host_bytes =
        std::max<std::int64_t>(0, parse_size(o.host_memory, "--host-memory") - step.host_pages);
  if (const auto disk = disk_memory(o)) update.disk_bytes = *disk - step.disk_pages;
  return update;
}

std::vector<std::int64_t> document_starts(const Options& o, std::int64_t context) {
  const std::int64_t length = o.document.empty() ? context : parse_size(o.document, "--document");
  if (length < 2) throw Error(fmt::format("--document is {}", length), "give at least 2 tokens");
  std::vector<std::int64_t> starts;
  for (std::int64_t at = 0; at < context; at += length) starts.push_back(at);
  return starts;
}

// Of the documents in the sequence's first `tokens`.
std::vector<std::int64_t> document_lengths(const std::vector<std::int64_t>& starts,
                                           std::int64_t tokens) {
  std::vector<std::int64_t> lengths;
  for (std::size_t i = 0; i < starts.size() && starts[i] < tokens; ++i)
    lengths.push_back(std::min(i + 1 < starts.size() ? starts[i + 1] : tokens, tokens) - starts[i]);
  return lengths;
}

// Arithmetic that a step does beyond the model's: the layers of all chunks but the kept ones run
// forward a second time.
double recomputed_flops(const ModelConfig& config, const NumericsRecord& numerics,
                        const std::vector<std::int64_t>& documents, std::int64_t context,
                        const Options& o) {
  const std::int64_t chunks = (context + numerics.chunk_tokens - 1) / numerics.chunk_tokens,
                     again =
                         std::max<std::int64_t>(0, chunks - o.keep_chunks) * numerics.chunk_tokens;
  ModelConfig layers = config;
  layers.vocabulary = 0;  // no head
  return flops_of(layers, document_lengths(documents, again)) / 3;
}

struct Timing {
  double total = 0;
  SequenceResult result;
  CpuTime cpu;
};

// One more run with every kernel noted; nothing where the device cannot.
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
    log_info("{:>8.3f} s {:>5.1f}% {:>7} x  {}", row.seconds, 100 * row.seconds / summary.span_s,
             row.calls, row.name.substr(0, 150));
  }
  return Json::parse(dump_json(to_json(summary)));
}

// Options that would do nothing are refused.
void check_options(const Options& o) {
  if (!o.optimizer.empty() && o.updates == 0)
    throw Error("--optimizer without --update", "add --update 3, for instance");
  const bool optimizer_on_disk = o.optimizer == "disk";
  if (optimizer_on_disk && o.disk_path.empty())
    throw Error("--optimizer disk without --disk-path", "name a directory on a local disk");
  for (const auto& [option, value] :
       {std::pair("--host-memory", &o.host_memory), std::pair("--disk-memory", &o.disk_memory)})
    if (!value->empty() && o.page_memory.empty() && !optimizer_on_disk)
      throw Error(fmt::format("{} without --page-memory or --optimizer disk", option),
                  "all pages are on the device: add --page-memory least, for instance");
  if (!o.disk_path.empty() && o.disk_memory.empty() && !optimizer_on_disk)
    throw Error("--disk-path without --disk-memory or --optimizer disk",
                "nothing goes to disk: add --disk-memory 100GiB, for instance");
  const auto full = [](const std::string& name) {
    return std::filesystem::absolute(name).lexically_normal();
  };
  if (!o.trace.empty() && !o.json.empty() && full(o.trace) == full(o.json))
    throw Error(fmt::format("--trace and --json are both {}", o.json), "name two files");
}

// What depends on the plan is said.
void warn_of_unused(const Options& o, const StepMemory& m) {
  if (o.page_memory.empty()) return;
  if (m.host_pages + m.disk_pages == 0)
    log_warning("--page-memory {} holds all pages: none goes to host memory or disk",
                o.page_memory);
  else if (m.disk_pages == 0 && !o.disk_memory.empty() && o.optimizer != "disk")
    log_warning(
        "--disk-memory {}: host memory holds all pages that leave the device, so none goes "
        "to disk; give a smaller --host-memory to use it",
        o.disk_memory);
}

int bench_step(const Options& o) {
  check_options(o);
  check_bench_json(o.json);
  std::optional<Tracer> tracer;
  if (!o.trace.empty()) tracer.emplace(o.trace);
  const ModelConfig config = shape_of(o);
  const std::int64_t context = parse_size(o.context, "--context");
  if (context < 2) throw Error(fmt::format("--context is {}", context), "give at least 2 tokens");
  const std::unique_ptr<Device> device = make_device(o.device);
  // A GPU wants larger products, and reads weights as it computes.
  const bool bf16 = device->computes_in_bf16();
  const std::string chunk = !o.chunk.empty() ? o.chunk
                            : bf16           ? "4096"
                                             : "1024",
                    dtype_name = !o.dtype.empty() ? o.dtype
                                 : bf16           ? "bf16"
                                                  : "f32";
  const NumericsRecord numerics = choose_numerics(*device, config, parse_size(chunk, "--chunk"),
                                                  parse_size(o.page, "--page"), o.numerics);
  if (const std::int64_t kv = kv_bytes_needed(config, numerics, context),
      free = device->available_bytes();
      kv > free && o.page_memory.empty())
    throw Error(fmt::format("--context {}: the KV pages alone need {} and the device has {} free",
                            o.context, format_bytes(static_cast<double>(kv)),
                            format_bytes(static_cast<double>(free))),
                "give a shorter --context or fewer --layers");
  const DType dtype = dtype_name == "bf16"  ? DType::kBF16
                      : dtype_name == "f16" ? DType::kF16
                                            : DType::kF32;
  ParameterSet weights(*device, config, dtype, "weights"),
      gradients(*device, config, DType::kF32, "gradients");
  initialize_repeating(weights, config, 0);
  gradients.zero();

  std::vector<std::int32_t> tokens(static_cast<std::size_t>(context)), targets(tokens.size(), -100);
  Random random(1);
  for (std::int32_t& t : tokens)
    t = static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(config.vocabulary)));
  std::copy(tokens.begin() + 1, tokens.end(), targets.begin());
  const std::vector<std::int64_t> documents = document_starts(o, context);
  for (const std::int64_t start : documents)
    if (start > 0) targets[static_cast<std::size_t>(start - 1)] = -100;

  const std::int64_t baseline_rss = resident_bytes();
  const bool own_peak = reset_peak_resident_bytes();
  StepRunner runner(config, weights, gradients, numerics,
                    {context, o.keep_chunks, o.rebuild_feed_forward,
                     pages_of(o, device->kind(), config, numerics, context), documents.size() > 1});
  warn_of_unused(o, runner.memory());
  OrderedJson record = to_json(numerics);
  record["choices"] = runner.choose_kernels();
  Timing best;
  const auto step = [&] {
    return runner.run({tokens, targets, documents},
                      1.0 / static_cast<double>(context - std::ssize(documents)));
  };
  for (std::int64_t i = 0; i < o.repeat; ++i) {
    gradients.zero();
    device->stream().synchronize();
    const bool traced = tracer && i + 1 == o.repeat;
    if (traced) tracer->start(*device, fmt::format("bench step {} {}", o.preset, context));
    const auto start = std::chrono::steady_clock::now();
    const CpuTime before = cpu_time();
    const SequenceResult result = step();
    const CpuTime after = cpu_time();
    const double total =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (i == 0 || traced || total < best.total)
      best = {
          total, result, {after.process_s - before.process_s, after.thread_s - before.thread_s}};
  }
  const std::int64_t peak_rss = peak_resident_bytes();
  if (tracer) tracer->finish();

  const std::vector<std::int64_t> lengths = document_lengths(documents, context);
  const StepMemory& m = runner.memory();
  const double model_tflops = flops_of(config, lengths) / best.total * 1e-12,
               hardware_tflops = (flops_of(config, lengths) +
                                  recomputed_flops(config, numerics, documents, context, o)) /
                                 best.total * 1e-12;
  const std::optional<double> peak = peak_flops_per_s(device->name());
  // On the CPU the step's memory is what the process grew by; on a device of its own, what was
  // allocated there.
  const bool shares_memory = device->kind() == DeviceKind::kCpu;
  const std::int64_t step_bytes =
      shares_memory ? peak_rss - baseline_rss
                    : device->allocated_bytes() - weights.bytes() - gradients.bytes();
  OrderedJson json = {
      {"preset", o.preset},
      {"context", context},
      {"documents", documents.size()},
      {"chunk", numerics.chunk_tokens},
      {"page", numerics.page_tokens},
      {"attention", o.attention},
      {"window", config.windows.front()},
      {"rebuild_feed_forward", o.rebuild_feed_forward},
      {"layers", config.layers},
      {"device", device->name()},
      {"threads", thread_count()},
      {"repeat", o.repeat},
      {"traced", tracer.has_value()},
      {"loss", best.result.loss_sum / static_cast<double>(best.result.counted)},
      {"weights_dtype", dtype_name},
      {"tokens_per_s", static_cast<double>(context) / best.total},
      {"model_tflops", model_tflops},
      {"hardware_tflops", hardware_tflops},
      {"model_flop_utilization", peak ? OrderedJson(model_tflops * 1e12 / *peak) : OrderedJson()},
      {"seconds",
       {{"total", best.total},
        {"forward", best.result.forward_s},
        {"recompute", best.result.recompute_s},
        {"backward", best.result.backward_s},
        {"to_host", best.result.move_times.copies.to_host_s},
        {"from_host", best.result.move_times.copies.from_host_s},
        {"disk", best.result.move_times.disk_s},
        {"blocked", best.result.move_times.blocked_s()},
        {"cpu", best.cpu.process_s},
        {"cpu_of_issuing_thread", best.cpu.thread_s}}},
      {"hidden_share", best.result.move_times.hidden_share()},
      {"memory",
       {{"weights", weights.bytes()},
        {"gradients", gradients.bytes()},
        {"kv_pages", m.kv_pages},
        {"kv_gradient_pages", m.kv_gradient_pages},
        {"workspace", m.workspace},
        {"workspace_bound", m.workspace_bound},
        {"host_pages", m.host_pages},
        {"disk_pages", m.disk_pages},
        {"moved_out", best.result.moved.out},
        {"moved_in", best.result.moved.in},
        {"moved_to_disk", best.result.moved.to_disk},
        {"moved_from_disk", best.result.moved.from_disk},
        {"kv_pages_peak", runner.store().kv_pool().peak()},
        {"kv_gradient_pages_peak", runner.store().gradient_pool().peak()},
        {"planned_step_bytes", m.total()},
        {"baseline_rss", baseline_rss},
        {"peak_rss", peak_rss},
        {"peak_rss_is_of_the_step", own_peak},
        {"device_allocated", device->allocated_bytes()},
        {"device_used", device->used_bytes()},
        {"step_bytes", step_bytes}}},
      {"numerics", record}};
  const auto bytes = [](std::int64_t b) { return format_bytes(static_cast<double>(b)); };
  log_info(
      "{} {} tokens, {}: {:.2f} s (forward {:.2f}, recompute {:.2f}, backward {:.2f}), {:.0f} "
      "tokens/s, {:.3f} model TFLOP/s, {:.3f} with recompute",
      o.preset, context, o.attention, best.total, best.result.forward_s, best.result.recompute_s,
      best.result.backward_s, static_cast<double>(context) / best.total, model_tflops,
      hardware_tflops);
  log_info(
      "memory beyond weights and gradients: {} measured, {} planned (KV {}, KV gradients {}, "
      "workspace {})",
      bytes(step_bytes), bytes(m.total()), bytes(m.kv_pages), bytes(m.kv_gradient_pages),
      bytes(m.workspace));
  if (const MovedBytes& moved = best.result.moved; moved.in + moved.out > 0)
    log_info(
        "pages: {} out in {:.2f} s, {} in in {:.2f} s ({} and {} by disk), computing waited "
        "{:.2f} s: {:.1f}% hidden",
        bytes(moved.out), best.result.move_times.copies.to_host_s, bytes(moved.in),
        best.result.move_times.copies.from_host_s, bytes(moved.to_disk), bytes(moved.from_disk),
        best.result.move_times.blocked_s(), 100 * best.result.move_times.hidden_share());
  if (tracer) log_info("the figures are those of the traced run, which tracing makes slower");
  if (o.profile) json["profile"] = profile(*device, step);
  // Last, since it takes memory that is not the step's, and changes the weights.
  if (o.updates > 0) json["update"] = bench_update(config, weights, gradients, update_of(o, m));
  return write_bench_json(o.json, json);
}

}  // namespace

void add_bench_step(CLI::App& bench, Action& action) {
  auto o = std::make_shared<Options>();
  CLI::App* command = bench.add_subcommand(
      "step", "one forward and backward pass of a built-in shape with random weights");
  command->add_option("--preset", o->preset, "built-in shape, e.g. qwen2.5-0.5b")->required();
  command->add_option("--context", o->context, "tokens of the sequence, e.g. 16K")->required();
  command->add_option("--document", o->document,
                      "tokens of a document; the sequence is packed with them. All: one document");
  command->add_option("--chunk", o->chunk, "tokens of a chunk: 1024 on the CPU, 4096 on a GPU");
  command->add_option("--page", o->page, "tokens of a page")->capture_default_str();
  command->add_option("--attention", o->attention, "dense, or window with --window")
      ->check(CLI::IsMember({"dense", "window"}))
      ->capture_default_str();
  command->add_option("--window", o->window, "tokens a query sees, itself included");
  command->add_option("--layers", o->layers, "use only so many layers")->check(CLI::PositiveNumber);
  command->add_option("--keep-chunks", o->keep_chunks, "last chunks that keep their activations")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_flag("--rebuild-feed-forward", o->rebuild_feed_forward,
                    "compute gate and up again in the backward pass: less workspace");
  command->add_option(
      "--page-memory", o->page_memory,
      "bytes on the device for pages, or least, or streaming (what it takes to move "
      "pages beside the arithmetic); the others go to host memory and disk");
  command->add_option("--host-memory", o->host_memory,
                      "bytes of host memory for pages, without it as many as there are; and for "
                      "--optimizer disk what they leave of it, without it none");
  command->add_option("--disk-memory", o->disk_memory,
                      "bytes of disk for pages, without it none; and for --optimizer disk what "
                      "they leave of it, without it as many as there are");
  command->add_option("--disk-path", o->disk_path, "the directory for what goes to disk");
  command->add_option("--dtype", o->dtype, "of the weights: f32 on the CPU, bf16 on a GPU")
      ->check(CLI::IsMember({"f32", "bf16", "f16"}));
  command->add_option("--repeat", o->repeat, "runs; the fastest counts")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  command->add_option("--update", o->updates, "updates by the optimizer after the step; timed")
      ->check(CLI::Range(1, 1'000'000));
  command
      ->add_option("--optimizer", o->optimizer,
                   "where its state is in --update: device (the default), host or disk")
      ->check(CLI::IsMember({"device", "host", "disk"}));
  command->add_flag("--profile", o->profile,
                    "one more run that notes every kernel: where the time goes, how much is idle");
  command
      ->add_option("--trace", o->trace,
                   "write what ran when in the last run to this file, for ui.perfetto.dev; the "
                   "figures are then that run's")
      ->check(not_empty());
  command->add_option("--json", o->json, "write the figures to this file instead of stdout")
      ->check(not_empty());
  add_numerics_options(*command, o->numerics);
  add_device_option(*command, o->device);
  command->callback([o, &action] { action = [o] { return bench_step(*o); }; });
}

}  // namespace longstride::cli
