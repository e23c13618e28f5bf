#include "attention/coded_pages.h"

#include <algorithm>

#include "base/error.h"
#include "ops/page_codes.h"

namespace longstride {

void CodedPages::Places::clear() {
  for (const std::int32_t page : pages_) slots_[static_cast<std::size_t>(page)] = -1;
  pages_.clear();
}

void CodedPages::Places::add(std::int64_t page, std::int64_t slot) {
  slots_.at(static_cast<std::size_t>(page)) = static_cast<std::int32_t>(slot);
  pages_.push_back(static_cast<std::int32_t>(page));
}

std::span<const std::int32_t> CodedPages::Places::before(std::int64_t page) const {
  return {pages_.begin(), std::ranges::lower_bound(pages_, page)};
}

std::span<const std::int32_t> CodedPages::Places::from(std::int64_t page) const {
  return {std::ranges::lower_bound(pages_, page), pages_.end()};
}

CodedPages::CodedPages(Device& device, KvStore& store, const WideCapacity& capacity,
                       std::int64_t logical_pages)
    : device_(device),
      store_(store),
      shape_(store.shape()),
      capacity_(capacity),
      kv_(logical_pages),
      sums_(logical_pages),
      sum_slots_(static_cast<std::size_t>(logical_pages), -1),
      hot_(shape_.layers, logical_pages) {
  if (capacity.kv_pages > 0)
    kv_memory_ = device.allocate(capacity.kv_pages * shape_.wide_page_bytes(), "wide KV pages");
  if (capacity.gradient_pages > 0)
    gradient_memory_ = device.allocate(
        (capacity.hot_pages + capacity.gradient_pages) * shape_.gradient_sum_bytes(),
        "sums of KV gradients");
}

void CodedPages::begin(std::int64_t tokens, std::int64_t chunk_tokens) {
  tokens_ = tokens;
  chunk_pages_ = chunk_tokens / shape_.page_tokens;
  kv_.clear();
  sums_.clear();
  std::ranges::fill(sum_slots_, -1);
  hot_.begin(most_hot_pages(shape_, (tokens + shape_.page_tokens - 1) / shape_.page_tokens));
  first_hot_.assign(static_cast<std::size_t>(shape_.layers), -1);
  next_hot_ = 0;
  hot_layer_ = -1;
}

void CodedPages::select(const Task& task, const PageSet& pages) {
  store_.select(task, pages);
  if (codes_gradients(task.layer)) hot_.count(task.layer, pages, first_own(task));
}

void CodedPages::place_kv(const PageSet& pages) {
  LS_CHECK(pages.size() <= capacity_.kv_pages, "{} pages, and wide copies of {}", pages.size(),
           capacity_.kv_pages);
  kv_.clear();
  for (const PageRun& run : pages.runs())
    for (std::int64_t page = run.begin; page < run.end; ++page) kv_.add(page, kv_.size());
}

std::span<const std::int32_t> CodedPages::place_hot(const Task& task) {
  if (hot_layer_ >= 0)
    for (const std::int32_t page : hot_.of(hot_layer_))
      sum_slots_[static_cast<std::size_t>(page)] = -1;
  hot_layer_ = task.sparse ? task.layer : -1;
  if (hot_layer_ < 0) return {};
  const std::span<const std::int32_t> hot = hot_.of(hot_layer_);
  std::int64_t& first = first_hot_[static_cast<std::size_t>(hot_layer_)];
  if (first < 0) {
    first = next_hot_;
    next_hot_ += std::ssize(hot);
    LS_CHECK(next_hot_ <= capacity_.hot_pages, "{} hot pages of {}", next_hot_,
             capacity_.hot_pages);
    if (!hot.empty())
      device_.zero(gradient_memory_->data() + first * shape_.gradient_sum_bytes(),
                   std::ssize(hot) * shape_.gradient_sum_bytes());
  }
  for (std::size_t i = 0; i < hot.size(); ++i)
    sum_slots_[static_cast<std::size_t>(hot[i])] =
        static_cast<std::int32_t>(first + static_cast<std::int64_t>(i));
  return hot;
}

void CodedPages::place_gradients(const Task& task, const PageSet& pages) {
  LS_CHECK(pages.size() <= capacity_.gradient_pages, "{} pages, and sums of {}", pages.size(),
           capacity_.gradient_pages);
  for (const std::int32_t page : sums_.from(0)) sum_slots_[static_cast<std::size_t>(page)] = -1;
  sums_.clear();
  const std::span<const std::int32_t> hot = place_hot(task);
  for (const PageRun& run : pages.runs())
    for (std::int64_t page = run.begin; page < run.end; ++page) {
      if (std::ranges::binary_search(hot, page)) continue;
      sums_.add(page, capacity_.hot_pages + sums_.size());
      sum_slots_[static_cast<std::size_t>(page)] = sums_.slots()[page];
    }
}

void CodedPages::enter(const Task& task) {
  store_.enter(task);
  if (task.append && codes_kv(task.layer)) place_kv(PageSet(task.appended));
}

void CodedPages::enter_segment(const Task& task, std::size_t segment) {
  if (store_.comes_in_segments(task)) store_.enter_segment(task, segment);
  if (!is_coded(task.layer)) return;
  const KeySegment& keys = (*task.segments)[segment];
  const std::int64_t P = shape_.page_tokens;
  const PageSet pages = task.sparse
                            ? store_.entered(task.layer)
                            : task.visited.intersection({keys.begin / P, (keys.end + P - 1) / P});
  if (codes_kv(task.layer)) {
    place_kv(pages);
    widen_own(task);
  }
  if (codes_gradients(task.layer) && task.kind == TaskKind::kLayerBackward) {
    place_gradients(task, pages);
    if (const auto own = sums_.from(first_own(task)); !own.empty())
      device_.zero(gradients(task.layer).plane(own.front(), 0),
                   std::ssize(own) * shape_.gradient_sum_bytes());
  }
}

void CodedPages::widen_own(const Task& task) {
  const auto pages = kv_.from(first_own(task));
  if (pages.empty()) return;
  ops::widen_pages(device_.stream(), {.codes = store_.kv(task.layer),
                                      .wide = kv(task.layer),
                                      .pages = pages,
                                      .end_token = tokens_});
}

void CodedPages::keep_appended(const Task& task) {
  if (!codes_kv(task.layer) || !task.append) return;
  const std::int64_t P = shape_.page_tokens;
  ops::narrow_pages(device_.stream(), {.wide = kv(task.layer),
                                       .codes = store_.kv(task.layer),
                                       .first_token = task.appended.begin * P,
                                       .end_token = std::min(task.appended.end * P, tokens_)});
  widen_own(task);
}

CodedView CodedPages::codes(const Task& task) const {
  CodedView view;
  if (codes_kv(task.layer)) {
    view.kv = store_.kv(task.layer);
    view.kv_pages = kv_.before(first_own(task));
  }
  if (codes_gradients(task.layer) && task.kind == TaskKind::kLayerBackward) {
    view.gradients = store_.gradients(task.layer);
    view.gradient_pages = sums_.before(first_own(task));
  }
  return view;
}

// The chunk's own gradients are complete with this: they are read next, and need no rounding. Hot
// pages have nothing in codes.
void CodedPages::keep_gradients(const Task& task) {
  if (!codes_gradients(task.layer)) return;
  if (const auto pages = sums_.from(first_own(task)); !pages.empty())
    ops::widen_pages(device_.stream(), {.codes = store_.gradients(task.layer),
                                        .wide = gradients(task.layer),
                                        .pages = pages,
                                        .end_token = tokens_,
                                        .add = true});
}

PagesView CodedPages::kv(std::int64_t layer) const {
  if (!codes_kv(layer)) return store_.kv(layer);
  return {kv_memory_->data(), kv_.slots(),     shape_.wide_page_bytes(),
          shape_.page_tokens, shape_.kv_heads, shape_.head_size,
          shape_.wide};
}

PagesView CodedPages::gradients(std::int64_t layer) const {
  if (!codes_gradients(layer)) return store_.gradients(layer);
  return {gradient_memory_->data(),
          sum_slots_.data(),
          shape_.gradient_sum_bytes(),
          shape_.page_tokens,
          shape_.kv_heads,
          shape_.head_size,
          DType::kF32};
}

}  // namespace longstride
