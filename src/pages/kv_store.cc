#include "pages/kv_store.h"

#include "base/error.h"

namespace longstride {
namespace {

constexpr std::int32_t kNone = -1;

}  // namespace

KvStore::KvStore(Device& device, const KvShape& shape, std::int64_t logical_pages,
                 std::int64_t kv_capacity, std::int64_t gradient_capacity)
    : device_(device),
      shape_(shape),
      kv_pool_(device, shape.page_bytes(), kv_capacity, "KV pages"),
      gradient_pool_(device, shape.gradient_page_bytes(), gradient_capacity, "KV gradient pages"),
      kv_tables_(static_cast<std::size_t>(shape.layers),
                 std::vector<std::int32_t>(static_cast<std::size_t>(logical_pages), kNone)),
      gradient_tables_(kv_tables_) {}

void KvStore::append(std::int64_t layer, PageRun run) {
  auto& table = kv_tables_.at(static_cast<std::size_t>(layer));
  for (std::int64_t page = run.begin; page < run.end; ++page) {
    std::int32_t& slot = table.at(static_cast<std::size_t>(page));
    LS_CHECK(slot == kNone, "layer {} page {} exists already", layer, page);
    slot = kv_pool_.take(home(kv_pool_, layer, page));
  }
}

void KvStore::touch_gradients(std::int64_t layer, PageRun run) {
  auto& table = gradient_tables_.at(static_cast<std::size_t>(layer));
  PageRun fresh{0, 0};  // slots that lie side by side are zeroed at once
  for (std::int64_t page = run.begin; page < run.end; ++page) {
    std::int32_t& slot = table.at(static_cast<std::size_t>(page));
    if (slot != kNone) continue;
    slot = gradient_pool_.take(home(gradient_pool_, layer, page));
    if (slot != fresh.end) {
      zero_gradients(fresh);
      fresh = {slot, slot};
    }
    ++fresh.end;
  }
  zero_gradients(fresh);
}

void KvStore::zero_gradients(PageRun slots) {
  if (slots.end > slots.begin)
    device_.zero(gradient_pool_.page(static_cast<std::int32_t>(slots.begin)),
                 (slots.end - slots.begin) * gradient_pool_.page_bytes());
}

void KvStore::release(std::int64_t layer, PageRun run) {
  for (std::int64_t page = run.begin; page < run.end; ++page) {
    std::int32_t& kv =
        kv_tables_.at(static_cast<std::size_t>(layer)).at(static_cast<std::size_t>(page));
    std::int32_t& gradient =
        gradient_tables_.at(static_cast<std::size_t>(layer)).at(static_cast<std::size_t>(page));
    if (kv != kNone) kv_pool_.give(kv);
    if (gradient != kNone) gradient_pool_.give(gradient);
    kv = gradient = kNone;
  }
}

void KvStore::release_all() {
  for (std::int64_t layer = 0; layer < shape_.layers; ++layer)
    release(layer,
            {0, static_cast<std::int64_t>(kv_tables_[static_cast<std::size_t>(layer)].size())});
}

PagesView KvStore::view(const PagePool& pool, const Tables& tables, std::int64_t layer,
                        DType dtype) const {
  return {pool.base(),
          tables.at(static_cast<std::size_t>(layer)).data(),
          pool.page_bytes(),
          shape_.page_tokens,
          shape_.kv_heads,
          shape_.head_size,
          dtype};
}

}  // namespace longstride
