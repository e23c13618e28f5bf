#include "attention/coded_pages.h"

#include <algorithm>

#include "base/error.h"
#include "ops/page_codes.h"

namespace longstride {

CodedPages::CodedPages(Device& device, KvStore& store, const WideCapacity& capacity,
                       std::int64_t logical_pages)
    : device_(device),
      store_(store),
      shape_(store.shape()),
      capacity_(capacity),
      places_(static_cast<std::size_t>(logical_pages), -1) {
  LS_CHECK(codes_kv() == is_page_code(shape_.dtype) &&
               (is_page_code(shape_.gradient_dtype) || !codes_gradients()),
           "wide copies of {} and {} pages for pages of {} and gradients of {}", capacity.kv_pages,
           capacity.gradient_pages, name_of(shape_.dtype), name_of(shape_.gradient_dtype));
  placed_.reserve(static_cast<std::size_t>(std::max(capacity.kv_pages, capacity.gradient_pages)));
  if (codes_kv())
    kv_memory_ = device.allocate(capacity.kv_pages * shape_.wide_page_bytes(), "wide KV pages");
  if (codes_gradients())
    gradient_memory_ = device.allocate(capacity.gradient_pages * shape_.gradient_sum_bytes(),
                                       "sums of KV gradients");
}

void CodedPages::begin(std::int64_t tokens, std::int64_t chunk_tokens) {
  tokens_ = tokens;
  chunk_pages_ = chunk_tokens / shape_.page_tokens;
  place({});
}

void CodedPages::place(const PageSet& pages) {
  for (const std::int32_t page : placed_) places_[static_cast<std::size_t>(page)] = -1;
  placed_.clear();
  for (const PageRun& run : pages.runs())
    for (std::int64_t page = run.begin; page < run.end; ++page) {
      places_.at(static_cast<std::size_t>(page)) = static_cast<std::int32_t>(placed_.size());
      placed_.push_back(static_cast<std::int32_t>(page));
    }
}

void CodedPages::enter(const Task& task) {
  store_.enter(task);
  if (task.append) place(PageSet(task.appended));
}

void CodedPages::enter_segment(const Task& task, std::size_t segment) {
  if (store_.comes_in_segments(task)) store_.enter_segment(task, segment);
  const KeySegment& keys = (*task.segments)[segment];
  const std::int64_t P = shape_.page_tokens;
  place(task.sparse ? store_.entered()
                    : task.visited.intersection({keys.begin / P, (keys.end + P - 1) / P}));
  const auto count = std::ssize(placed_);
  if (codes_kv()) {
    LS_CHECK(count <= capacity_.kv_pages, "{} pages, and wide copies of {}", count,
             capacity_.kv_pages);
    widen_own(task);
  }
  if (codes_gradients() && task.kind == TaskKind::kLayerBackward) {
    LS_CHECK(count <= capacity_.gradient_pages, "{} pages, and sums of {}", count,
             capacity_.gradient_pages);
    if (const auto pages = own(task); !pages.empty())
      device_.zero(gradients(task.layer).plane(pages.front(), 0),
                   std::ssize(pages) * shape_.gradient_sum_bytes());
  }
}

void CodedPages::widen_own(const Task& task) {
  const auto pages = own(task);
  if (pages.empty()) return;
  ops::widen_pages(device_.stream(), {.codes = store_.kv(task.layer),
                                      .wide = kv(task.layer),
                                      .pages = pages,
                                      .end_token = tokens_});
}

void CodedPages::keep_appended(const Task& task) {
  if (!codes_kv() || !task.append) return;
  const std::int64_t P = shape_.page_tokens;
  ops::narrow_pages(device_.stream(), {.wide = kv(task.layer),
                                       .codes = store_.kv(task.layer),
                                       .first_token = task.appended.begin * P,
                                       .end_token = std::min(task.appended.end * P, tokens_)});
  widen_own(task);
}

std::span<const std::int32_t> CodedPages::own(const Task& task) const {
  return {std::ranges::lower_bound(placed_, task.chunk * chunk_pages_), placed_.end()};
}

std::span<const std::int32_t> CodedPages::earlier(const Task& task) const {
  return std::span(placed_).first(placed_.size() - own(task).size());
}

CodedView CodedPages::codes(const Task& task) const {
  CodedView view{.pages = earlier(task)};
  if (codes_kv()) view.kv = store_.kv(task.layer);
  if (codes_gradients() && task.kind == TaskKind::kLayerBackward)
    view.gradients = store_.gradients(task.layer);
  return view;
}

// The chunk's own gradients are complete with this: they are read next, and need no rounding.
void CodedPages::keep_gradients(const Task& task) {
  if (!codes_gradients()) return;
  if (const auto pages = own(task); !pages.empty())
    ops::widen_pages(device_.stream(), {.codes = store_.gradients(task.layer),
                                        .wide = gradients(task.layer),
                                        .pages = pages,
                                        .end_token = tokens_,
                                        .add = true});
}

PagesView CodedPages::kv(std::int64_t layer) const {
  if (!codes_kv()) return store_.kv(layer);
  return {kv_memory_->data(), places_.data(),  shape_.wide_page_bytes(),
          shape_.page_tokens, shape_.kv_heads, shape_.head_size,
          shape_.wide};
}

PagesView CodedPages::gradients(std::int64_t layer) const {
  if (!codes_gradients()) return store_.gradients(layer);
  return {gradient_memory_->data(),
          places_.data(),
          shape_.gradient_sum_bytes(),
          shape_.page_tokens,
          shape_.kv_heads,
          shape_.head_size,
          DType::kF32};
}

}  // namespace longstride
