// Hot pages: where gradient pages are coded, those of a sparse layer that the most chunks attend to
// keep their gradients in F32, on the device. Every chunk's addition to a coded page is rounded,
// and the few pages that most chunks attend to (the first ones of the document, for instance) get
// hundreds of them: their rounding errors are nearly all there is.
//
// Which ones they are follows from the lists of the forward pass and KvShape::hot_pages alone.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "pages/kv_shape.h"
#include "schedule/step_schedule.h"

namespace longstride {

// The most hot pages of a layer in a sequence: at most a 16th of its pages.
inline std::int64_t most_hot_pages(const KvShape& shape, std::int64_t pages) {
  const std::int64_t share = (pages + 15) / 16;
  return share < shape.hot_pages ? share : shape.hot_pages;
}
inline std::int64_t most_hot_pages(const KvShape& shape, const SequenceLayout& layout) {
  return most_hot_pages(shape, layout.pages());
}

// Sparse layers with a backward pass and coded gradient pages.
std::int64_t layers_with_hot_pages(const KvShape& shape, const StepSchedule& schedule);

// How many chunks attend to each page of each layer. Not thread-safe: the thread that runs the step
// owns it.
class HotPages {
 public:
  HotPages(std::int64_t layers, std::int64_t logical_pages);

  // Begins a sequence of which every layer may have so many hot pages.
  void begin(std::int64_t most);
  // A chunk's pages in a sparse layer; those from `own` on are its own and do not count.
  void count(std::int64_t layer, const PageSet& pages, std::int64_t own);
  // The layer's hot pages, ascending; at least two chunks attend to each. Of equally many the lower
  // page is hot. Chosen by the first call, before which all chunks have been counted.
  std::span<const std::int32_t> of(std::int64_t layer);

 private:
  std::int64_t most_ = 0;
  std::vector<std::vector<std::int32_t>> visits_;  // by layer, then page; empty: none
  std::vector<std::vector<std::int32_t>> hot_;     // by layer
  std::vector<bool> chosen_;
  std::vector<std::int32_t> order_;
  std::int64_t logical_pages_;
};

}  // namespace longstride
