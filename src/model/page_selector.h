// Page selection of sparse layers: the summaries of new pages, the choice of pages by the queries
// of a chunk, and the visit lists of every pass over it.
//
// Not thread-safe: the thread that runs the step owns it.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "attention/selected_lists.h"
#include "attention/visits.h"
#include "model/layer.h"
#include "pages/page_summaries.h"
#include "tensor/selection.h"

namespace longstride {

class PageSelector {
 public:
  // All must outlive it.
  PageSelector(Device& device, const SparseLayers& sparse, const PageSummaries& summaries)
      : device_(device), sparse_(sparse), summaries_(summaries) {}

  // Reserves capacity for sequences of up to this layout's tokens.
  void reserve(const SequenceLayout& layout);
  void begin_sequence(const SequenceLayout& layout);
  // Summarizes the pages that the task has appended, for the chunks after it.
  void summarize(const LayerPass& pass);
  // Chooses the chunk's pages by its rotated queries, those that this process attends with
  // (ChunkContext::attended), without waiting for the result. Processes that share heads add up
  // their scores and choose the same pages.
  void select(const LayerPass& pass, ConstView q_THC);
  // Waits for the result of that, and tells `pages` which they are. Nothing to do if it has been
  // done.
  void settle(const Task& task, PageStore& pages);
  // The same for all choices so far.
  void settle_all(PageStore& pages);
  // The visit lists of a task of a sparse layer, once its pages are selected. Valid until the next
  // call.
  VisitsView visits(const Task& task);

  // The most pages that a query page and a chunk select in a layer, whatever the chunk.
  struct Most {
    std::int64_t selected = 0, in_union = 0;
  };
  Most most(std::int64_t layer) const {
    return {std::min(sparse_.budget(layer), longest_.pages()),
            std::min(sparse_.selection.union_pages, longest_.pages())};
  }

  // Of the scores of a chunk's pages for earlier ones, whatever the chunk.
  static std::int64_t most_score_bytes(const SequenceLayout& longest);

  // The lists of the last sequence.
  const SelectedLists& lists() const { return lists_; }

 private:
  Device& device_;
  const SparseLayers& sparse_;
  const PageSummaries& summaries_;
  SequenceLayout longest_, layout_;
  SelectedLists lists_;
  VisitLists visits_;
  // A choice on its way to the host. The last layer's waits until a slot is needed: no task of its
  // episode attends to its pages.
  struct Pending {
    Task task;
    ResultFence fence;
    std::vector<std::int32_t> lists;
    bool active = false;
  };
  void settle(Pending& pending, PageStore& pages);
  // In place of the scores of this process's heads: those of all. `of_all`: one by one.
  static void add_heads(const ChunkContext& ctx, View scores_QN, View of_all);

  static constexpr std::size_t kMostPending = 4;
  std::array<Pending, kMostPending> pending_;
  std::size_t next_pending_ = 0;
  std::vector<std::int32_t> first_rows_;
  std::vector<PageRun> runs_;
};

}  // namespace longstride
