#include "pages/kv_store.h"

namespace longstride {
namespace {

std::unique_ptr<Mover> needed(Device& device, const KvCapacity& capacity,
                              std::unique_ptr<Mover> mover) {
  if (capacity.kv_offload.records() + capacity.gradient_offload.records() == 0) return nullptr;
  return mover ? std::move(mover) : device.make_mover();
}

TieredPages make_pages(Device& device, Mover* mover, const KvShape& shape,
                       const KvCapacity& capacity, bool gradients) {
  const OffloadCapacity& offload = gradients ? capacity.gradient_offload : capacity.kv_offload;
  return {device, offload.records() > 0 ? mover : nullptr,
          TieredShape{.layers = shape.layers,
                      .logical_pages = capacity.logical_pages,
                      .pages_per_group = capacity.pages_per_group,
                      .page_bytes = gradients ? shape.gradient_page_bytes() : shape.page_bytes(),
                      .capacity = gradients ? capacity.gradient_pages : capacity.kv_pages,
                      .offload = offload},
          gradients ? "KV gradient pages" : "KV pages"};
}

bool is_backward(const Task& task) { return task.kind == TaskKind::kLayerBackward; }

}  // namespace

KvStore::KvStore(Device& device, const KvShape& shape, const KvCapacity& capacity,
                 std::unique_ptr<Mover> mover)
    : shape_(shape),
      mover_(needed(device, capacity, std::move(mover))),
      kv_(make_pages(device, mover_.get(), shape, capacity, false)),
      gradients_(make_pages(device, mover_.get(), shape, capacity, true)),
      late_(shape.layers) {}

void LateAccesses::add(std::int64_t chunk, std::int64_t layer, Access access) {
  const auto i = static_cast<std::size_t>(chunk * layers_ + layer);
  if (i >= first_.size()) first_.resize(static_cast<std::size_t>((chunk + 1) * layers_), -1);
  entries_.push_back({access, first_[i]});
  first_[i] = std::ssize(entries_) - 1;
}

KvAccesses list_accesses(const StepSchedule& schedule, std::int64_t layers,
                         std::int64_t page_tokens, bool in_segments) {
  KvAccesses lists{AccessList(layers), AccessList(layers), LateAccesses(layers)};
  const auto visit = [&](const Task& task, const PageSet& pages) {
    const bool late = task.sparse;
    if (late) lists.late.add(task.chunk, task.layer, {lists.kv.size(), false});
    lists.kv.add({.layer = task.layer, .pages = pages, .late = late});
    if (!is_backward(task)) return;
    if (late) lists.late.add(task.chunk, task.layer, {lists.gradients.size(), true});
    lists.gradients.add({.layer = task.layer,
                         .pages = pages,
                         .creates = true,
                         .zeroed = true,
                         .changes = true,
                         .late = late});
  };
  for (const Episode& episode : schedule.episodes)
    for (const Task& task : episode.tasks) {
      if (task.layer < 0) continue;
      if (task.append)
        lists.kv.add({.layer = task.layer,
                      .pages = task.appended,
                      .creates = true,
                      .all_new = true,
                      .changes = true});
      if (!task.attends()) continue;
      if (task.sparse) {
        visit(task, {});
        continue;
      }
      if (!in_segments) {
        visit(task, task.visited);
        continue;
      }
      for (const KeySegment& segment : *task.segments)
        visit(task, task.visited.intersection({segment.begin / page_tokens,
                                               (segment.end + page_tokens - 1) / page_tokens}));
    }
  return lists;
}

void KvStore::begin(const StepSchedule& schedule) {
  KvAccesses lists = list_accesses(schedule, shape_.layers, shape_.page_tokens, mover_ != nullptr);
  late_ = std::move(lists.late);
  kv_.begin(std::move(lists.kv));
  gradients_.begin(std::move(lists.gradients));
  next_kv_ = next_gradient_ = 0;
  appended_ = -1;
}

void KvStore::enter_visited(const Task& task) {
  kv_.enter(next_kv_++);
  if (is_backward(task)) gradients_.enter(next_gradient_++);
}

void KvStore::leave_visited(const Task& task) {
  kv_.leave(next_kv_ - 1);
  if (is_backward(task)) gradients_.leave(next_gradient_ - 1);
}

void KvStore::enter(const Task& task) {
  if (task.append) {
    appended_ = next_kv_++;
    kv_.enter(appended_);
  }
  if (task.attends() && !comes_in_segments(task)) enter_visited(task);
}

void KvStore::select(const Task& task, const PageSet& pages) {
  late_.for_each(task.chunk, task.layer, [&](LateAccesses::Access access) {
    (access.gradients ? gradients_ : kv_).resolve(access.number, pages);
  });
}

void KvStore::enter_segment(const Task& task, std::size_t segment) {
  if (segment > 0) leave_visited(task);
  enter_visited(task);
}

void KvStore::leave(const Task& task) {
  if (task.attends()) leave_visited(task);
  if (task.append) kv_.leave(appended_);
  if (task.freed.size() == 0) return;
  kv_.release(task.layer, task.freed);
  if (is_backward(task)) gradients_.release(task.layer, task.freed);
}

void KvStore::release_all() {
  finish();
  kv_.release_all();
  gradients_.release_all();
}

void KvStore::finish() {
  if (mover_) mover_->finish();
}

MovedBytes KvStore::moved() const { return kv_.offload().moved() + gradients_.offload().moved(); }

OffloadTimes KvStore::take_times() {
  OffloadTimes times;
  if (!mover_) return times;
  times.copies = mover_->take_times();
  const DiskTimes now = kv_.offload().disk_times() + gradients_.offload().disk_times();
  times.disk_s = now.busy_s - disk_taken_.busy_s;
  times.waited_s = now.waited_s - disk_taken_.waited_s;
  disk_taken_ = now;
  return times;
}

PagesView KvStore::view(const TieredPages& pages, std::int64_t layer, DType dtype,
                        bool centred) const {
  return {pages.pool().base(),
          pages.table(layer),
          pages.pool().page_bytes(),
          shape_.page_tokens,
          shape_.kv_heads,
          shape_.head_size,
          dtype,
          centred && is_page_code(dtype)};
}

}  // namespace longstride
