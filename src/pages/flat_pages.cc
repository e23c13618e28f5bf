#include "pages/flat_pages.h"

#include <limits>
#include <numeric>

#include "base/error.h"

namespace longstride {

FlatPages::FlatPages(Device& device, const KvShape& shape, std::int64_t pages)
    : shape_(shape), pages_(pages) {
  LS_CHECK(shape.layers * pages <= std::numeric_limits<std::int32_t>::max(),
           "{} pages of {} layers", pages, shape.layers);
  slots_.resize(static_cast<std::size_t>(shape.layers * pages));
  std::iota(slots_.begin(), slots_.end(), 0);
  memory_ = device.allocate(bytes_needed(shape, pages), "KV pages");
}

PagesView FlatPages::kv(std::int64_t layer) const {
  return {memory_->data(),     slots_.data() + layer * pages_,
          shape_.page_bytes(), shape_.page_tokens,
          shape_.kv_heads,     shape_.head_size,
          shape_.dtype};
}

PagesView FlatPages::gradients(std::int64_t layer) const {
  LS_CHECK(false, "gradients of layer {}", layer);
  return {};
}

}  // namespace longstride
