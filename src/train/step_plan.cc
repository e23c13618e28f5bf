#include "train/step_plan.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "model/parameters.h"
#include "ops/paged_attention.h"
#include "train/chunk_runner.h"

namespace longstride {
namespace {

// Runs an episode's tasks on shapes alone.
WorkspaceTrace record(const Episode& episode, const RunnerContext& context,
                      const SequenceLayout& layout) {
  Workspace workspace;
  ChunkRunner runner(context, workspace, nullptr);
  workspace.start_recording();
  runner.begin_sequence(layout, {}, 1.0f);
  for (const Task& task : episode.tasks) runner.run(task);
  return workspace.finish_recording();
}

PlacedEpisode place(const Episode& episode, const RunnerContext& context,
                    const SequenceLayout& layout) {
  PlacedEpisode placed;
  placed.trace = record(episode, context, layout);
  placed.placement = place_greedy(placed.trace);
  const std::string wrong = check_placement(placed.trace, placed.placement);
  LS_CHECK(wrong.empty(), "{}", wrong);
  return placed;
}

}  // namespace

KvShape kv_shape(const ModelConfig& config, const NumericsRecord& numerics) {
  const auto dtype = [](const std::string& name) {
    return name == "bf16" ? DType::kBF16 : DType::kF32;
  };
  return {config.layers,        config.kv_heads,         config.head_size,
          numerics.page_tokens, dtype(numerics.compute), dtype(numerics.kv_gradient_dtype)};
}

std::int64_t kv_bytes_needed(const ModelConfig& config, const NumericsRecord& numerics,
                             std::int64_t tokens) {
  const SequenceLayout layout{tokens, numerics.chunk_tokens, numerics.page_tokens, {0}};
  layout.validate();
  const KvShape shape = kv_shape(config, numerics);
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max() / 4;
  const double bytes = static_cast<double>(layout.pages()) * static_cast<double>(config.layers) *
                       static_cast<double>(shape.page_bytes());
  return bytes < static_cast<double>(kMost) ? layout.pages() * config.layers * shape.page_bytes()
                                            : kMost;
}

ScheduleOptions schedule_options(DeviceKind runs_on, const ModelConfig& config,
                                 const NumericsRecord& numerics, std::int64_t keep_chunks) {
  const ops::PagedAttentionShape shape{
      numerics.chunk_tokens, config.query_heads,
      config.kv_heads,       config.head_size,
      numerics.page_tokens,  numerics.compute == "bf16" ? DType::kBF16 : DType::kF32};
  const bool exact = numerics.determinism == "exact";
  return {config.windows, keep_chunks, ops::paged_attention_cut(runs_on, {shape, false, exact}),
          ops::paged_attention_cut(runs_on, {shape, true, exact})};
}

StepPlan plan_step(const Device& runs_on, const ModelConfig& config,
                   const std::vector<DType>& weight_dtypes, const NumericsRecord& numerics,
                   const StepOptions& options) {
  StepPlan plan;
  // A chunk larger than the context is the whole of it.
  SequenceLayout layout{options.max_tokens, numerics.chunk_tokens, numerics.page_tokens, {0}};
  ScheduleOptions cuts = schedule_options(runs_on.kind(), config, numerics, options.keep_chunks);
  cuts.packed = options.packed;
  const StepSchedule schedule = make_step_schedule(layout, cuts);
  const KvShape shape = kv_shape(config, numerics);
  const PageSpread spread = spread_pages(layout, schedule, shape, options.pages);
  plan.room = spread.capacity;
  plan.memory.kv_pages = spread.kv_bytes;
  plan.memory.kv_gradient_pages = spread.gradient_bytes;
  plan.memory.host_pages = spread.host_bytes;
  plan.memory.disk_pages = spread.disk_bytes;

  // Only sizes matter here, so every chunk counts as full, up to the whole sequence; one more chunk
  // than is kept shows all kinds of episodes, and shorter sequences keep fewer chunks.
  Device& device = shapes_device(runs_on.kind());
  const ParameterSet weights(device, config, weight_dtypes, "weights"),
      gradients(device, config, DType::kF32, "gradients");
  const ModelParameters weight_views = weights.model(), gradient_views = gradients.model();
  const RunnerContext context{device,
                              config,
                              numerics,
                              weight_views,
                              gradient_views,
                              View(nullptr, DType::kF64, {config.head_size / 2}),
                              1.0,
                              options.rebuild_feed_forward};
  const std::int64_t kept_at_most = std::min(options.keep_chunks, layout.chunks());
  for (std::int64_t kept = 1; kept <= kept_at_most; ++kept) {
    SequenceLayout full = layout;
    full.tokens = layout.chunks() == 1
                      ? layout.tokens
                      : (kept + (kept < layout.chunks() ? 1 : 0)) * layout.chunk_tokens;
    for (const Episode& episode : make_step_schedule(full, {config.windows, kept}).episodes) {
      const auto key = std::pair{episode.kind, episode.chunks};
      if (!plan.episodes.contains(key)) plan.episodes.emplace(key, place(episode, context, full));
    }
  }
  for (const auto& [key, placed] : plan.episodes) {
    plan.memory.workspace = std::max(plan.memory.workspace, placed.placement.bytes);
    plan.memory.workspace_bound =
        std::max(plan.memory.workspace_bound, live_bytes_bound(placed.trace));
  }
  return plan;
}

}  // namespace longstride
