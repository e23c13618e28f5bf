#include "pages/kv_store.h"

namespace longstride {
namespace {

// Pages that a layer's task reads or writes.
PageRun used_by(const Task& task) { return task.only_kv ? task.appended : task.visited; }

}  // namespace

KvStore::KvStore(Device& device, const KvShape& shape, const KvRoom& room)
    : shape_(shape),
      pages_per_chunk_(room.pages_per_chunk),
      kv_(device,
          {shape.layers, room.logical_pages, room.pages_per_chunk, shape.page_bytes(),
           room.kv_pages, room.kv_away},
          "KV pages"),
      gradients_(device,
                 {shape.layers, room.logical_pages, room.pages_per_chunk,
                  shape.gradient_page_bytes(), room.gradient_pages, room.gradient_away},
                 "KV gradient pages") {}

void KvStore::begin(const StepSchedule& schedule) {
  std::vector<std::vector<BlockUse>> kv(static_cast<std::size_t>(shape_.layers)), gradients = kv;
  for (const Episode& episode : schedule.episodes)
    for (const Task& task : episode.tasks) {
      if (task.layer < 0) continue;
      const PageRun used = used_by(task);
      const BlockUse use{task.position, used.begin / pages_per_chunk_,
                         (used.end - 1) / pages_per_chunk_};
      kv[static_cast<std::size_t>(task.layer)].push_back(use);
      if (task.kind == TaskKind::kLayerBackward)
        gradients[static_cast<std::size_t>(task.layer)].push_back(use);
    }
  kv_.begin(std::move(kv));
  gradients_.begin(std::move(gradients));
}

void KvStore::enter(const Task& task) {
  const PageRun used = used_by(task);
  kv_.enter({.position = task.position,
             .layer = task.layer,
             .used = used,
             .created = task.append ? task.appended : PageRun{used.begin, used.begin}});
  if (task.kind == TaskKind::kLayerBackward)
    gradients_.enter({.position = task.position,
                      .layer = task.layer,
                      .used = used,
                      .created = used,
                      .existing_may_be_created = true,
                      .zeroed = true,
                      .changes = true});
}

void KvStore::leave(const Task& task) {
  if (task.freed.size() == 0) return;
  kv_.release(task.layer, task.freed);
  gradients_.release(task.layer, task.freed);
}

void KvStore::release_all() {
  kv_.release_all();
  gradients_.release_all();
}

AwayBlocks::Moved KvStore::moved() const {
  const AwayBlocks::Moved &a = kv_.moved(), &b = gradients_.moved();
  return {a.out + b.out, a.in + b.in, a.to_disk + b.to_disk, a.from_disk + b.from_disk};
}

PagesView KvStore::view(const TieredPages& pages, std::int64_t layer, DType dtype) const {
  return {pages.pool().base(),
          pages.table(layer),
          pages.pool().page_bytes(),
          shape_.page_tokens,
          shape_.kv_heads,
          shape_.head_size,
          dtype};
}

}  // namespace longstride
