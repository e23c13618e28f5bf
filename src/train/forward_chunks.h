// ForwardChunks: the forward pass of single chunks of a sequence, in any order that finds the
// earlier ones in their pages, and as often as needed. Records and places their workspace once.
//
// Not thread-safe: the thread that runs the step owns it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "model/chunk_runner.h"
#include "plan/step_plan.h"

namespace longstride {

class ForwardChunks {
 public:
  // `context`, its references, `parameters` (the weights' specs) and `pages` must outlive it.
  // Chunks have `chunk_tokens`, a multiple of the page, of sequences of up to `max_tokens`.
  ForwardChunks(const RunnerContext& context, const std::vector<ParameterSpec>& parameters,
                PageStore& pages, std::int64_t chunk_tokens, std::int64_t max_tokens);
  ForwardChunks(const ForwardChunks&) = delete;
  ForwardChunks& operator=(const ForwardChunks&) = delete;

  std::int64_t workspace_bytes() const;
  std::int64_t chunk_tokens() const { return longest_.chunk_tokens; }

  // Computes keys and values of chunk number `chunk` of a sequence that has at least these
  // `tokens`; if `logits` is given, also those of its last token (V floats). All chunks before it
  // must be in the pages. A chunk that `tokens` do not fill is as long as they are. The workspace
  // is at `arena`.
  void run(std::byte* arena, std::span<const std::int32_t> tokens, std::int64_t chunk,
           float* logits, const std::function<bool()>& should_stop);

 private:
  PlacedEpisode place(const RunnerContext& context, const std::vector<ParameterSpec>& parameters,
                      const ScheduleOptions& options, bool logits) const;

  Stream& stream_;
  SequenceLayout longest_;
  ScheduleOptions to_keys_, to_output_;
  PlacedEpisode keys_, output_;
  Workspace workspace_;
  ChunkRunner runner_;
};

}  // namespace longstride
