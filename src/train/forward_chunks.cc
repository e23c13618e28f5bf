#include "train/forward_chunks.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "train/step.h"

namespace longstride {
namespace {

NumericsRecord with_chunk(NumericsRecord numerics, std::int64_t tokens) {
  numerics.chunk_tokens = tokens;
  return numerics;
}

}  // namespace

ForwardChunks::ForwardChunks(const RunnerContext& context,
                             const std::vector<ParameterSpec>& parameters, PageStore& pages,
                             std::int64_t chunk_tokens, std::int64_t max_tokens)
    : stream_(context.device.stream()),
      longest_{max_tokens, chunk_tokens, context.numerics.page_tokens, {0}},
      to_keys_(schedule_options(context.device, context.config,
                                with_chunk(context.numerics, chunk_tokens), {})),
      to_output_(to_keys_.without_backward()),
      keys_(place(context, parameters, to_keys_, false)),
      output_(place(context, parameters, to_output_, true)),
      runner_(context, workspace_, pages) {
  runner_.reserve(longest_);
}

std::int64_t ForwardChunks::workspace_bytes() const {
  return std::max(keys_.placement.bytes, output_.placement.bytes);
}

PlacedEpisode ForwardChunks::place(const RunnerContext& context,
                                   const std::vector<ParameterSpec>& parameters,
                                   const ScheduleOptions& options, bool logits) const {
  Device& device = shapes_device(context.device.runs_on());
  const ParameterSet weights(device, parameters, "weights");
  const ModelParameters views = weights.model(), none;
  const KvShape shape = kv_shape(context.config, context.numerics);
  const RetainedActivations retained(device, {});
  const PageSummaries summaries(device, shape, context.numerics.sparse, longest_.pages());
  const RunnerContext on_shapes{.device = device,
                                .config = context.config,
                                .numerics = context.numerics,
                                .weights = views,
                                .gradients = none,
                                .rope = rope_shapes(context.config),
                                .retained = retained,
                                .summaries = summaries};
  SequenceLayout layout = longest_;
  layout.tokens = std::min(layout.tokens, layout.chunk_tokens);
  const std::vector<std::int32_t> zeros(static_cast<std::size_t>(layout.tokens));
  Workspace workspace;
  ShapesPages pages(layout.page_tokens);
  ChunkRunner runner(on_shapes, workspace, pages);
  runner.reserve(longest_);
  workspace.start_recording();
  runner.begin_sequence(layout, {zeros, zeros, layout.document_starts}, 1.0f);
  for (const Task& task : forward_episode(layout, options, 0).tasks) runner.run(task);
  if (logits) runner.logits(0, nullptr);
  runner.end_episode();
  PlacedEpisode placed{workspace.finish_recording(), {}};
  placed.placement = place_by_orders(placed.trace, live_bytes_bound(placed.trace));
  const std::string wrong = check_placement(placed.trace, placed.placement);
  LS_CHECK(wrong.empty(), "{}", wrong);
  return placed;
}

void ForwardChunks::run(std::byte* arena, std::span<const std::int32_t> tokens, std::int64_t chunk,
                        float* logits, const std::function<bool()>& should_stop) {
  SequenceLayout layout = longest_;
  const std::int64_t begin = layout.chunk_begin(chunk), full = begin + layout.chunk_tokens;
  LS_CHECK(begin < std::ssize(tokens) && std::ssize(tokens) <= longest_.tokens,
           "chunk {} of {} tokens, room for {}", chunk, tokens.size(), longest_.tokens);
  // Only a chunk that others follow is summarized, for their choice of pages: so a full one must
  // not be the last, though nothing of the next is read.
  layout.tokens =
      std::ssize(tokens) < full ? std::ssize(tokens) : std::min(full + 1, longest_.tokens);
  const PlacedEpisode& placed = logits != nullptr ? output_ : keys_;
  const Episode episode = forward_episode(layout, logits != nullptr ? to_output_ : to_keys_, chunk);
  runner_.begin_sequence(layout, {tokens, {}, layout.document_starts}, 1.0f);
  workspace_.start_replay(arena, placed.trace, placed.placement.offsets);
  try {
    for (const Task& task : episode.tasks) {
      if (should_stop && should_stop()) throw Interrupted("stopped between two tasks");
      runner_.run(task);
      stream_.throttle();
    }
    if (logits != nullptr) runner_.logits(chunk, logits);
    runner_.end_episode();
    workspace_.finish_replay();
  } catch (...) {
    runner_.drop();
    workspace_.abandon();
    throw;
  }
}

}  // namespace longstride
