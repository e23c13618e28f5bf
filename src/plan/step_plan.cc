#include "plan/step_plan.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "model/chunk_runner.h"
#include "model/parameters.h"
#include "model/rope_on_device.h"
#include "ops/paged_attention.h"
#include "plan/placement_cache.h"

namespace longstride {
namespace {

// Bytes: less is not worth a search for a better placement.
constexpr std::int64_t kWorthASearch = std::int64_t{1} << 20;

// Runs an episode's tasks on shapes alone. Some tensors are as large as the `longest` sequence
// needs them, whatever the layout.
// `zeros` are at least as many as either has tokens.
WorkspaceTrace record(const Episode& episode, const RunnerContext& context,
                      const SequenceLayout& layout, const SequenceLayout& longest,
                      std::span<const std::int32_t> zeros) {
  Workspace workspace;
  ShapesPages pages(layout.page_tokens);
  ChunkRunner runner(context, workspace, pages);
  zeros = zeros.first(static_cast<std::size_t>(layout.tokens));
  runner.reserve(longest);
  workspace.start_recording();
  runner.begin_sequence(layout, {zeros, zeros, layout.document_starts}, 1.0f);
  for (const Task& task : episode.tasks) runner.run(task);
  runner.end_episode();
  return workspace.finish_recording();
}

// The workspace is as large as the largest episode, so only those are worth a search that exceed
// the bound of every other. Returns the proven bound of all.
std::int64_t improve_largest(PlacedEpisodes& episodes) {
  std::int64_t bound = 0;
  for (const auto& [shape, placed] : episodes)
    bound = std::max(bound, live_bytes_bound(placed.trace));
  std::int64_t proven = bound;
  for (auto& [shape, placed] : episodes) {
    if (placed.placement.bytes - bound > kWorthASearch) {
      BestPlacement best = place_best(placed.trace, PlacementCache::of_environment());
      proven = std::max(proven, best.bound);
      placed.placement = std::move(best.placement);
    }
    const std::string wrong = check_placement(placed.trace, placed.placement);
    LS_CHECK(wrong.empty(), "{}", wrong);
  }
  return proven;
}

// Layers without a backward pass retain nothing, except the last one, whose output the head needs.
void train_from(std::int64_t first, ScheduleOptions& schedule) {
  schedule.first_trained_layer = first;
  const std::size_t layers = schedule.windows.size();
  first = std::min<std::int64_t>(first, std::ssize(schedule.windows) - 1);
  for (std::vector<Retention>* list : {&schedule.across_episodes, &schedule.offloaded})
    for (std::size_t i = 0; i < list->size(); ++i)
      if (static_cast<std::int64_t>(i % layers) < first) (*list)[i] = {};
}

// What another stage has sent is not sent again: it is retained for the recomputation of its chunk,
// on the device unless it leaves it anyway.
void keep_inputs(std::int64_t chunks, ScheduleOptions& schedule) {
  const std::size_t layers = schedule.windows.size();
  for (std::int64_t chunk = 0; chunk < chunks - schedule.keep_chunks; ++chunk) {
    const std::size_t i = static_cast<std::size_t>(chunk) * layers;
    if (schedule.across_episodes.size() <= i) schedule.across_episodes.resize(i + 1);
    if (!schedule.saved(chunk, 0).has(Retained::kInput))
      schedule.across_episodes[i] = schedule.across_episodes[i] | Retention{Retained::kInput};
  }
}

}  // namespace

ScheduleOptions schedule_options(const Device& runs_on, const ModelConfig& config,
                                 const NumericsRecord& numerics, const StepOptions& options) {
  const std::int64_t heads = options.stage.heads.ranks;
  const ops::PagedAttentionShape shape{.tokens = numerics.chunk_tokens,
                                       .query_heads = config.query_heads / heads,
                                       .kv_heads = config.kv_heads / heads,
                                       .head_size = config.head_size,
                                       .page_tokens = numerics.page_tokens,
                                       .compute = numerics.compute};
  const bool exact = numerics.exact();
  const auto cut = [&](bool backward) {
    return ops::paged_attention_cut(
        runs_on.runs_on(), {shape, backward, exact, runs_on.kind() == DeviceKind::kShapes});
  };
  return {.windows = config.windows,
          .keep_chunks = options.keep_chunks,
          .within_episode = options.within_episode,
          .across_episodes = options.across_episodes,
          .offloaded = options.offloaded,
          .forward_cut = cut(false),
          .backward_cut = cut(true),
          .packed = options.packed,
          .sparse = numerics.sparse,
          .wavefront = options.wavefront,
          .stage = options.stage};
}

KvShape kv_shape(const ModelConfig& config, const NumericsRecord& numerics,
                 const HeadShare& heads) {
  return {.layers = config.layers,
          .kv_heads = config.kv_heads / heads.ranks,
          .head_size = config.head_size,
          .page_tokens = numerics.page_tokens,
          .dtype = numerics.kv_codes.value_or(numerics.compute),
          .gradient_dtype = numerics.kv_gradient_dtype,
          .wide = numerics.compute,
          .by_layer = numerics.layer_pages,
          .hot_pages = numerics.hot_pages};
}

std::int64_t kv_bytes_needed(const ModelConfig& config, const NumericsRecord& numerics,
                             std::int64_t tokens, const HeadShare& heads) {
  const SequenceLayout layout{tokens, numerics.chunk_tokens, numerics.page_tokens, {0}};
  layout.validate();
  const KvShape shape = kv_shape(config, numerics, heads);
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max() / 4;
  std::int64_t of_page = 0;  // and of all layers
  for (std::int64_t layer = 0; layer < config.layers; ++layer) of_page += shape.page_bytes(layer);
  const double bytes = static_cast<double>(layout.pages()) * static_cast<double>(of_page);
  return bytes < static_cast<double>(kMost) ? layout.pages() * of_page : kMost;
}

RetainedLayout StepPlan::retained(const ModelConfig& config, DType compute) const {
  return {config, compute, longest_chunk(), schedule.across_episodes, schedule.stage.heads};
}

std::vector<Retention> StepPlan::saved() const {
  std::vector<Retention> saved;
  if (schedule.offloaded.empty()) return saved;
  const std::int64_t layers = std::ssize(schedule.windows),
                     recomputed =
                         std::max<std::int64_t>(0, layout().chunks() - schedule.keep_chunks);
  for (std::int64_t chunk = 0; chunk < recomputed; ++chunk)
    for (std::int64_t layer = 0; layer < layers; ++layer)
      saved.push_back(schedule.saved(chunk, layer));
  const bool none = std::ranges::all_of(saved, [](Retention r) { return r.empty(); });
  return none ? std::vector<Retention>() : saved;
}

const PlacedEpisode& StepPlan::placed(const Episode& episode) const {
  const auto found = episodes.find(shape_of(episode));
  LS_CHECK(found != episodes.end(), "an episode of {} tasks is not in the plan",
           episode.tasks.size());
  return found->second;
}

StepPlanner::StepPlanner(const Device& runs_on, const ModelConfig& config,
                         const std::vector<ParameterSpec>& parameters,
                         const NumericsRecord& numerics, const StepOptions& options)
    : layout_{options.max_tokens, numerics.chunk_tokens, numerics.page_tokens, {0}},
      shape_(kv_shape(config, numerics, options.stage.heads)) {
  StepPlan& plan = without_pages_;
  plan.max_tokens = options.max_tokens;
  plan.chunk_tokens = numerics.chunk_tokens;
  plan.page_tokens = numerics.page_tokens;
  plan.trained = trained_parts(parameters, config.layers);
  if (options.stage.trains_below) plan.trained.first_layer = 0;
  plan.weighted = options.weighted;
  plan.schedule = schedule_options(runs_on, config, numerics, options);
  train_from(plan.trained.first_layer, plan.schedule);
  if (options.stage.receives && plan.schedule.has_backward())
    keep_inputs(layout_.chunks(), plan.schedule);
  if (options.forward_only) plan.schedule = plan.schedule.without_backward();
  schedule_ = make_step_schedule(layout_, plan.schedule);
  place_episodes(runs_on, config, parameters, numerics, options);
  plan.memory.retained = plan.retained(config, shape_.wide).bytes();
  const ActivationSpread activations =
      spread_activations({config, shape_.wide, options.stage.heads}, plan.longest_chunk(),
                         plan.saved(), options.activations);
  plan.activations = activations.capacity;
  plan.memory.host_activations = activations.host_bytes;
  plan.memory.disk_activations = activations.disk_bytes;
  plan.memory.summaries = PageSummaries::bytes(shape_, numerics.sparse, layout_.pages());
  plan.wide_pages = wide_capacity(layout_, schedule_, shape_);
  plan.memory.wide_pages = plan.wide_pages.bytes(shape_);
  plan.memory.rope = rope_shapes(config).bytes();
}

void StepPlanner::place_episodes(const Device& runs_on, const ModelConfig& config,
                                 const std::vector<ParameterSpec>& parameters,
                                 const NumericsRecord& numerics, const StepOptions& options) {
  Device& device = shapes_device(runs_on.runs_on());
  const ParameterSet weights(device, parameters, "weights"),
      gradients = ParameterSet::gradients(device, parameters);
  const ModelParameters weight_views = weights.model(), gradient_views = gradients.model();
  const RetainedActivations retained(device, without_pages_.retained(config, shape_.wide));
  const PageSummaries summaries(device, shape_, numerics.sparse, layout_.pages());
  const RunnerContext context{.device = device,
                              .config = config,
                              .numerics = numerics,
                              .weights = weight_views,
                              .gradients = gradient_views,
                              .rope = rope_shapes(config),
                              .retained = retained,
                              .summaries = summaries,
                              .weighted = options.weighted,
                              .stage = options.stage};
  // Only sizes matter here, so every chunk counts as full, up to the whole sequence.
  const auto full = [](SequenceLayout layout) {
    if (layout.chunks() > 1) layout.tokens = layout.chunks() * layout.chunk_tokens;
    return layout;
  };
  const std::vector<std::int32_t> zeros(static_cast<std::size_t>(full(layout_).tokens));
  const auto place_all = [&](const std::vector<Episode>& all, const SequenceLayout& layout) {
    for (const Episode& episode : all) {
      EpisodeShape shape = shape_of(episode);
      if (without_pages_.episodes.contains(shape)) continue;
      WorkspaceTrace trace = record(episode, context, full(layout), full(layout_), zeros);
      Placement placement = place_by_orders(trace, live_bytes_bound(trace));
      without_pages_.episodes.emplace(std::move(shape),
                                      PlacedEpisode{std::move(trace), std::move(placement)});
    }
  };
  place_all(schedule_.episodes, layout_);
  place_all(episodes_of_shorter(layout_, without_pages_.schedule), layout_);
  const ScheduleOptions& schedule = without_pages_.schedule;
  if (options.evaluates)
    place_all(make_step_schedule(layout_, schedule.without_backward()).episodes, layout_);
  if (options.scores)
    place_all(make_step_schedule(layout_, schedule.scoring(layout_.chunks())).episodes, layout_);
  // Sequences with fewer chunks than keep_chunks keep all of them.
  for (std::int64_t kept = 1;
       kept < std::min(layout_.chunks(), without_pages_.schedule.keep_chunks); ++kept) {
    SequenceLayout shorter = layout_;
    shorter.tokens = kept * layout_.chunk_tokens;
    place_all(make_step_schedule(shorter, without_pages_.schedule).episodes, shorter);
  }
  StepMemory& memory = without_pages_.memory;
  if (!options.quick) memory.workspace_bound = improve_largest(without_pages_.episodes);
  for (const auto& [shape, placed] : without_pages_.episodes)
    memory.workspace = std::max(memory.workspace, placed.placement.bytes);
}

StepPlan StepPlanner::plan(const PageBudget& pages) const {
  StepPlan plan = without_pages_;
  const PageSpread spread = spread_pages(layout_, schedule_, shape_, pages);
  plan.pages = spread.capacity;
  plan.memory.kv_pages = spread.kv_bytes;
  plan.memory.kv_gradient_pages = spread.gradient_bytes;
  plan.memory.host_pages = spread.host_bytes;
  plan.memory.disk_pages = spread.disk_bytes;
  return plan;
}

}  // namespace longstride
