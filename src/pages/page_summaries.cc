#include "pages/page_summaries.h"

#include "base/error.h"

namespace longstride {
namespace {

std::int64_t layer_elements(const KvShape& shape, const SparseLayers& sparse, std::int64_t pages) {
  return pages * (shape.page_tokens / sparse.selection.summary_tokens) * shape.kv_heads *
         shape.head_size;
}

}  // namespace

std::int64_t PageSummaries::bytes(const KvShape& shape, const SparseLayers& sparse,
                                  std::int64_t pages) {
  const auto layers = std::count_if(sparse.budgets.begin(), sparse.budgets.end(),
                                    [](std::int64_t b) { return b != SparseLayers::kNone; });
  return layers * layer_elements(shape, sparse, pages) * size_of(shape.wide);
}

PageSummaries::PageSummaries(Device& device, const KvShape& shape, const SparseLayers& sparse,
                             std::int64_t pages)
    : shape_(shape), pages_(pages), means_(shape.page_tokens / sparse.selection.summary_tokens) {
  std::int64_t n = 0;
  for (const std::int64_t budget : sparse.budgets)
    index_.push_back(budget == SparseLayers::kNone ? -1 : n++);
  if (n > 0) memory_ = device.allocate(bytes(shape, sparse, pages), "page summaries");
}

View PageSummaries::of_layer(std::int64_t layer) const {
  const std::int64_t i = index_.at(static_cast<std::size_t>(layer));
  LS_CHECK(i >= 0, "layer {} is not sparse", layer);
  const Shape shape{pages_ * means_, shape_.kv_heads, shape_.head_size};
  // On a device of shapes there is no memory to point into.
  std::byte* const base = memory_->data();
  return {base == nullptr ? nullptr : base + i * shape.elements() * size_of(shape_.wide),
          shape_.wide, shape};
}

}  // namespace longstride
