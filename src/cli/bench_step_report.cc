#include "cli/bench_step_report.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "api/record.h"
#include "base/files.h"
#include "base/log.h"
#include "base/sizes.h"
#include "base/thread_pool.h"
#include "cli/bench_stage.h"
#include "cli/link_rate.h"
#include "cli/page_pools.h"
#include "observe/flops.h"
#include "plan/allocator_model.h"
#include "plan/pipeline_svg.h"
#include "plan/step_cost.h"
#include "plan/this_machine.h"
#include "tensor/dtype_words.h"

namespace longstride::cli {
namespace {

// Lengths of the documents in the sequence's first `tokens`.
std::vector<std::int64_t> document_lengths(const std::vector<std::int64_t>& starts,
                                           std::int64_t tokens) {
  std::vector<std::int64_t> lengths;
  for (std::size_t i = 0; i < starts.size() && starts[i] < tokens; ++i)
    lengths.push_back(std::min(i + 1 < starts.size() ? starts[i + 1] : tokens, tokens) - starts[i]);
  return lengths;
}

// As the user chose it.
std::string attention_of(const StepBenchOptions& o) {
  return o.sparse.layers.empty() ? o.attention : fmt::format("{}", fmt::join(o.sparse.layers, ","));
}

SparseFlops sparse_of(const StepPlan& plan) {
  return {plan.schedule.sparse.budgets, plan.chunk_tokens, plan.page_tokens};
}

// Arithmetic beyond the model FLOPs: the layers of all chunks except the kept ones run forward a
// second time.
double recomputed_flops(const ModelConfig& config, const StepPlan& plan,
                        const StepBenchResult& best) {
  const std::int64_t recomputed =
      std::max<std::int64_t>(0, plan.layout().chunks() - plan.schedule.keep_chunks) *
      plan.chunk_tokens;
  ModelConfig layers = config;
  layers.vocabulary = 0;  // no head
  return api::flops_of(layers, sparse_of(plan), document_lengths(best.documents, recomputed)) / 3;
}

struct Rates {
  double model_tflops = 0, hardware_tflops = 0;
};

Rates rates_of(const Engine& engine, const StepBenchResult& best) {
  ModelConfig config = engine.config();
  if (engine.runner().plan().schedule.stage.sends) config.vocabulary = 0;  // no head
  const double model = api::flops_of(config, sparse_of(engine.runner().plan()),
                                     document_lengths(best.documents, best.context));
  const double recomputed = std::max(
      0.0, recomputed_flops(engine.config(), engine.runner().plan(), best) - best.saved_flops);
  return {model / best.total * 1e-12, (model + recomputed) / best.total * 1e-12};
}

// On the CPU, the growth of the process; on a device with its own memory, the bytes allocated
// there.
std::int64_t step_bytes(Engine& engine, const StepBenchResult& best) {
  const Device& device = engine.device();
  if (device.shares_host_memory()) return best.peak_rss - best.baseline_rss;
  return device.allocated_bytes() - engine.weights().bytes() - engine.gradients().bytes();
}

OrderedJson seconds_to_json(const StepBenchResult& best) {
  const StepSeconds& seconds = best.result.seconds;
  return {{"total", best.total},
          {"forward", seconds.forward},
          {"recompute", seconds.recompute},
          {"backward", seconds.backward},
          {"to_host", best.result.move_times.copies.to_host_s},
          {"from_host", best.result.move_times.copies.from_host_s},
          {"disk", best.result.move_times.disk_s},
          {"blocked", best.result.move_times.blocked_s()},
          {"cpu", best.cpu.process_s},
          {"cpu_of_issuing_thread", best.cpu.thread_s}};
}

OrderedJson memory_to_json(Engine& engine, const StepBenchResult& best) {
  const StepMemory& m = engine.memory();
  const Device& device = engine.device();
  const AllocatorUse allocator = simulate_allocator(engine.runner().plan());
  return {{"weights", engine.weights().bytes()},
          {"gradients", engine.gradients().bytes()},
          {"kv_pages", m.kv_pages},
          {"kv_gradient_pages", m.kv_gradient_pages},
          {"workspace", m.workspace},
          {"workspace_bound", m.workspace_bound},
          {"caching_allocator_workspace", allocator.reserved},
          {"caching_allocator_fragmentation", allocator.fragmentation()},
          {"page_summaries", m.summaries},
          {"wide_pages", m.wide_pages},
          {"retained", m.retained},
          {"host_pages", m.host_pages},
          {"disk_pages", m.disk_pages},
          {"pools", page_pools_to_json(engine.runner().plan(), best.record)},
          {"host_activations", m.host_activations},
          {"disk_activations", m.disk_activations},
          {"moved_out", best.result.moved.out},
          {"moved_in", best.result.moved.in},
          {"moved_to_disk", best.result.moved.to_disk},
          {"moved_from_disk", best.result.moved.from_disk},
          {"kv_pages_peak", engine.runner().store().peak_kv_pages()},
          {"kv_gradient_pages_peak", engine.runner().store().peak_gradient_pages()},
          {"planned_step_bytes", m.total()},
          {"baseline_rss", best.baseline_rss},
          {"peak_rss", best.peak_rss},
          {"peak_rss_is_of_the_step", best.own_peak},
          {"device_allocated", device.allocated_bytes()},
          {"device_used", device.used_bytes()},
          {"device_used_after_first_run", best.used_after_first},
          {"step_bytes", step_bytes(engine, best)}};
}

// By the rates of this machine; null if they are for another type of activations.
OrderedJson predicted_seconds(Engine& engine, const StepBenchResult& best) {
  const MachineRates rates = rates_of_this_machine(engine.device());
  if (rates.compute != best.record.compute) return nullptr;
  return predict_step(engine.config(), best.record, engine.runner().plan(), rates).total();
}

OrderedJson selection_to_json(const SelectionCounts& s) {
  if (s.unions == 0) return {};
  return {{"mean_union", s.mean_union()}, {"most_union", s.most}, {"reuse", s.reuse()}};
}

// With stages that are all like this one.
std::optional<PipelineRun> simulated(const StepBenchOptions& o, const Engine& engine,
                                     const StepBenchResult& best) {
  if (o.stages == 1) return std::nullopt;
  const StepPlan& plan = engine.runner().plan();
  SequenceLayout layout = plan.layout();
  layout.tokens = best.context;
  layout.document_starts = best.documents;
  return simulate_equal_stages(plan, layout, best.task_seconds, o.stages,
                               engine.config().hidden_size * size_of(best.record.compute),
                               link_of(o.link_rate));
}

std::string picture_of_stages(const StepBenchOptions& o, const PipelineRun& run,
                              std::int64_t context) {
  PipelinePicture picture{
      .title = fmt::format("{}, {} tokens, {} stages", o.preset, format_count(context), o.stages),
      .subtitle = fmt::format("Simulated from the measured chunks of stage {}: {:.2f} s, of which "
                              "{:.1f}% idle.",
                              o.stage, run.seconds, 100 * run.idle_share()),
      .stages = {}};
  for (std::int64_t s = 0; s < o.stages; ++s)
    picture.stages.emplace_back(s == o.stage ? "measured" : "taken to be alike");
  return to_svg(run, picture);
}

void log_simulated(const StepBenchOptions& o, const PipelineRun& run) {
  log_info(
      "simulated: {} stages that all take as long as this one: {:.2f} s, {:.1f}% of it idle; "
      "messages at {:.3g} GB/s",
      o.stages, run.seconds, 100 * run.idle_share(), link_of(o.link_rate).bytes_per_s * 1e-9);
}

void log_figures(const StepBenchOptions& o, Engine& engine, const StepBenchResult& best,
                 const Rates& rates) {
  const StepSeconds& seconds = best.result.seconds;
  const StepMemory& m = engine.memory();
  const auto bytes = [](std::int64_t b) { return format_bytes(static_cast<double>(b)); };
  const std::int64_t first = engine.runner().plan().schedule.stage.first_layer;
  const std::string stage = o.stages == 1
                                ? ""
                                : fmt::format(", stage {} of {} (layers {} to {}),", o.stage,
                                              o.stages, first, first + engine.config().layers - 1);
  log_info(
      "{}{} {} tokens, {}: {:.2f} s (forward {:.2f}, recompute {:.2f}, backward {:.2f}), {:.0f} "
      "tokens/s, {:.3f} model TFLOP/s, {:.3f} with recompute",
      o.preset, stage, best.context, attention_of(o), best.total, seconds.forward,
      seconds.recompute, seconds.backward, static_cast<double>(best.context) / best.total,
      rates.model_tflops, rates.hardware_tflops);
  log_info(
      "memory beyond weights and gradients: {} measured, {} planned (KV {}, KV gradients {}, "
      "workspace {}{}{})",
      bytes(step_bytes(engine, best)), bytes(m.total()), bytes(m.kv_pages),
      bytes(m.kv_gradient_pages), bytes(m.workspace),
      m.wide_pages > 0 ? ", wide copies of pages " + bytes(m.wide_pages) : "",
      m.retained > 0 ? ", activations " + bytes(m.retained) : "");
  if (m.host_pages + m.disk_pages > 0)
    for (const std::string& line : describe_page_pools(engine.runner().plan(), best.record))
      log_info("{}", line);
  if (const SelectionCounts& selection = best.result.selection; selection.unions > 0)
    log_info(
        "sparse: a chunk attends to {:.0f} different earlier pages in a layer ({} at most), each "
        "of "
        "them from {:.1f} pages of queries; page summaries take {}",
        selection.mean_union(), selection.most, selection.reuse(), bytes(m.summaries));
  if (const MovedBytes& moved = best.result.moved; moved.in + moved.out > 0)
    log_info(
        "pages: {} out in {:.2f} s, {} in in {:.2f} s ({} and {} by disk), computing waited "
        "{:.2f} s: {:.1f}% hidden",
        bytes(moved.out), best.result.move_times.copies.to_host_s, bytes(moved.in),
        best.result.move_times.copies.from_host_s, bytes(moved.to_disk), bytes(moved.from_disk),
        best.result.move_times.blocked_s(), 100 * best.result.move_times.hidden_share());
}

}  // namespace

OrderedJson report_step(const StepBenchOptions& o, Engine& engine, const StepBenchResult& best) {
  const Rates rates = rates_of(engine, best);
  const StepPlan& plan = engine.runner().plan();
  const ModelConfig& config = engine.config();
  const Device& device = engine.device();
  const std::optional<double> peak = peak_flops_per_s(device.name());
  log_figures(o, engine, best, rates);
  const std::optional<PipelineRun> pipeline = simulated(o, engine, best);
  if (pipeline) log_simulated(o, *pipeline);
  if (pipeline && !o.svg.empty())
    write_file_atomic(o.svg, picture_of_stages(o, *pipeline, best.context));
  return {
      {"preset", o.preset},
      {"context", best.context},
      {"documents", best.documents.size()},
      {"tokens", o.tokens},
      {"chunk", plan.chunk_tokens},
      {"page", plan.page_tokens},
      {"attention", attention_of(o)},
      {"window", config.windows.front()},
      {"rebuild_feed_forward", o.rebuild_feed_forward},
      {"layers", config.layers},
      {"stages", o.stages},
      {"stage", o.stage},
      {"first_layer", plan.schedule.stage.first_layer},
      {"device", device.name()},
      {"threads", thread_count()},
      {"repeat", o.repeat},
      {"traced", best.traced},
      {"loss", best.result.targets == 0
                   ? OrderedJson()
                   : OrderedJson(best.result.loss_sum / static_cast<double>(best.result.targets))},
      {"lora", o.lora},
      {"weights_dtype", word_of(engine.weights().specs().front().dtype)},
      {"quantize", o.quantize},
      {"tokens_per_s", static_cast<double>(best.context) / best.total},
      {"model_tflops", rates.model_tflops},
      {"hardware_tflops", rates.hardware_tflops},
      {"model_flop_utilization",
       peak ? OrderedJson(rates.model_tflops * 1e12 / *peak) : OrderedJson()},
      {"seconds", seconds_to_json(best)},
      {"predicted_seconds", predicted_seconds(engine, best)},
      {"link_bytes_per_s",
       o.stages == 1 ? OrderedJson() : OrderedJson(link_of(o.link_rate).bytes_per_s)},
      {"simulated_seconds", pipeline ? OrderedJson(pipeline->seconds) : OrderedJson()},
      {"simulated_idle_share", pipeline ? OrderedJson(pipeline->idle_share()) : OrderedJson()},
      {"selection", selection_to_json(best.result.selection)},
      {"hidden_share", best.result.move_times.hidden_share()},
      {"memory", memory_to_json(engine, best)},
      {"numerics", best.numerics}};
}

}  // namespace longstride::cli
