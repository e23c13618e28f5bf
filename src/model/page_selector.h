// Page selection of sparse layers: the summaries of new pages, the choice of pages by the queries
// of a chunk, and the visit lists of every pass over it.
//
// Not thread-safe: the thread that runs the step owns it.
#pragma once

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
  // Both must outlive it.
  PageSelector(const SparseLayers& sparse, const PageSummaries& summaries)
      : sparse_(sparse), summaries_(summaries) {}

  // Reserves capacity for sequences of up to this layout's tokens.
  void reserve(const SequenceLayout& layout);
  void begin_sequence(const SequenceLayout& layout);
  // Summarizes the pages that the task has appended, for the chunks after it.
  void summarize(const LayerPass& pass);
  // If the task selects, chooses the chunk's pages by its rotated queries and tells pass.pages.
  // Waits for the queries then.
  void select(const LayerPass& pass, ConstView q_THC);
  // The visit lists of a task of a sparse layer, once its pages are selected. Valid until the next
  // call.
  VisitsView visits(const Task& task);

  // The lists of the last sequence.
  const SelectedLists& lists() const { return lists_; }

 private:
  const SparseLayers& sparse_;
  const PageSummaries& summaries_;
  SequenceLayout longest_, layout_;
  SelectedLists lists_;
  VisitLists visits_;
  std::vector<std::int32_t> first_rows_, chosen_;
  std::vector<PageRun> runs_;
};

}  // namespace longstride
