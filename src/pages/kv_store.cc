#include "pages/kv_store.h"

#include <algorithm>
#include <string>

#include "base/error.h"

namespace longstride {
namespace {

std::unique_ptr<Mover> needed(Device& device, const KvCapacity& capacity,
                              std::unique_ptr<Mover> mover) {
  const auto offloads = [](const PoolCapacity& pool) { return pool.offload.records() > 0; };
  if (std::ranges::none_of(capacity.kv, offloads) &&
      std::ranges::none_of(capacity.gradients, offloads))
    return nullptr;
  return mover ? std::move(mover) : device.make_mover();
}

bool is_backward(const Task& task) { return task.kind == TaskKind::kLayerBackward; }

}  // namespace

KvStore::Pools KvStore::make_pools(Device& device, Mover* mover, const KvShape& shape,
                                   const KvCapacity& capacity, bool gradients) {
  const std::vector<LayerPool> pools = pools_of(shape, gradients);
  const std::vector<PoolCapacity>& capacities = gradients ? capacity.gradients : capacity.kv;
  LS_CHECK(capacities.size() == pools.size(), "capacities of {} pools, and there are {}",
           capacities.size(), pools.size());
  Pools made{{}, places_of(pools, shape.layers)};
  for (std::size_t p = 0; p < pools.size(); ++p) {
    const PoolCapacity& c = capacities[p];
    std::string what = gradients ? "KV gradient pages" : "KV pages";
    if (pools.size() > 1) what += fmt::format(" in {}", name_of(pools[p].type));
    made.all.push_back(
        {std::make_unique<TieredPages>(device, c.offload.records() > 0 ? mover : nullptr,
                                       TieredShape{.layers = std::ssize(pools[p].layers),
                                                   .logical_pages = capacity.logical_pages,
                                                   .pages_per_group = capacity.pages_per_group,
                                                   .page_bytes = pools[p].page_bytes,
                                                   .capacity = c.pages,
                                                   .offload = c.offload},
                                       what)});
  }
  return made;
}

KvStore::KvStore(Device& device, const KvShape& shape, const KvCapacity& capacity,
                 std::unique_ptr<Mover> mover)
    : shape_(shape),
      mover_(needed(device, capacity, std::move(mover))),
      kv_(make_pools(device, mover_.get(), shape, capacity, false)),
      gradients_(make_pools(device, mover_.get(), shape, capacity, true)),
      late_(shape.layers) {}

std::int64_t KvStore::Pools::peak() const {
  std::int64_t pages = 0;
  for (const Pool& pool : all) pages += pool.pages->pool().peak();
  return pages;
}

void KvStore::Pools::begin(std::vector<AccessList> accesses) {
  for (std::size_t p = 0; p < all.size(); ++p) {
    all[p].pages->begin(std::move(accesses[p]));
    all[p].next = 0;
  }
}

void KvStore::Pools::enter_next(std::int64_t layer) {
  Pool& p = pool(layer);
  p.pages->enter(p.next++);
}

void KvStore::Pools::leave_last(std::int64_t layer) {
  const Pool& p = pool(layer);
  p.pages->leave(p.next - 1);
}

void KvStore::Pools::release(std::int64_t layer, PageRun run) {
  pool(layer).pages->release(index(layer), run);
}

template <class F>
void KvStore::for_pools(const F& f) const {
  for (const Pools* pools : {&kv_, &gradients_})
    for (const Pool& pool : pools->all) f(*pool.pages);
}

void LateAccesses::add(std::int64_t chunk, std::int64_t layer, Access access) {
  const auto i = static_cast<std::size_t>(chunk * layers_ + layer);
  if (i >= first_.size()) first_.resize(static_cast<std::size_t>((chunk + 1) * layers_), -1);
  entries_.push_back({access, first_[i]});
  first_[i] = std::ssize(entries_) - 1;
}

KvAccesses list_accesses(const StepSchedule& schedule, const KvShape& shape, bool in_segments) {
  const std::vector<LayerPool> kv_pools = pools_of(shape, false),
                               gradient_pools = pools_of(shape, true);
  const std::vector<LayerPlace> kv = places_of(kv_pools, shape.layers),
                                gradients = places_of(gradient_pools, shape.layers);
  KvAccesses lists{{}, {}, LateAccesses(shape.layers)};
  for (const LayerPool& pool : kv_pools) lists.kv.emplace_back(std::ssize(pool.layers));
  for (const LayerPool& pool : gradient_pools)
    lists.gradients.emplace_back(std::ssize(pool.layers));
  const auto visit = [&](const Task& task, const PageSet& pages) {
    const bool late = task.sparse;
    const auto [kv_pool, kv_index] = kv.at(static_cast<std::size_t>(task.layer));
    AccessList& reads = lists.kv[static_cast<std::size_t>(kv_pool)];
    if (late) lists.late.add(task.chunk, task.layer, {reads.size(), false});
    reads.add({.layer = kv_index, .pages = pages, .late = late});
    if (!is_backward(task)) return;
    const auto [pool, index] = gradients.at(static_cast<std::size_t>(task.layer));
    AccessList& writes = lists.gradients[static_cast<std::size_t>(pool)];
    if (late) lists.late.add(task.chunk, task.layer, {writes.size(), true});
    writes.add({.layer = index,
                .pages = pages,
                .creates = true,
                .zeroed = true,
                .changes = true,
                .late = late});
  };
  for (const Episode& episode : schedule.episodes)
    for (const Task& task : episode.tasks) {
      if (task.layer < 0) continue;
      if (task.append) {
        const auto [pool, index] = kv.at(static_cast<std::size_t>(task.layer));
        lists.kv[static_cast<std::size_t>(pool)].add({.layer = index,
                                                      .pages = task.appended,
                                                      .creates = true,
                                                      .all_new = true,
                                                      .changes = true});
      }
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
        visit(task, task.visited.intersection(
                        {segment.begin / shape.page_tokens,
                         (segment.end + shape.page_tokens - 1) / shape.page_tokens}));
    }
  return lists;
}

void KvStore::begin(const StepSchedule& schedule) {
  KvAccesses lists = list_accesses(schedule, shape_, mover_ != nullptr);
  late_ = std::move(lists.late);
  kv_.begin(std::move(lists.kv));
  gradients_.begin(std::move(lists.gradients));
  appended_ = -1;
}

void KvStore::enter_visited(const Task& task) {
  kv_.enter_next(task.layer);
  if (is_backward(task)) gradients_.enter_next(task.layer);
}

void KvStore::leave_visited(const Task& task) {
  kv_.leave_last(task.layer);
  if (is_backward(task)) gradients_.leave_last(task.layer);
}

void KvStore::enter(const Task& task) {
  if (task.append) {
    appended_ = kv_.pool(task.layer).next;
    kv_.enter_next(task.layer);
  }
  if (task.attends() && !comes_in_segments(task)) enter_visited(task);
}

void KvStore::select(const Task& task, const PageSet& pages) {
  late_.for_each(task.chunk, task.layer, [&](LateAccesses::Access access) {
    Pools& pools = access.gradients ? gradients_ : kv_;
    pools.pool(task.layer).pages->resolve(access.number, pages);
  });
}

void KvStore::enter_segment(const Task& task, std::size_t segment) {
  if (segment > 0) leave_visited(task);
  enter_visited(task);
}

void KvStore::leave(const Task& task) {
  if (task.attends()) leave_visited(task);
  if (task.append) kv_.pool(task.layer).pages->leave(appended_);
  if (task.freed.size() == 0) return;
  kv_.release(task.layer, task.freed);
  if (is_backward(task)) gradients_.release(task.layer, task.freed);
}

void KvStore::release_all() {
  finish();
  for (Pools* pools : {&kv_, &gradients_})
    for (Pool& pool : pools->all) pool.pages->release_all();
}

void KvStore::finish() {
  if (mover_) mover_->finish();
}

MovedBytes KvStore::moved() const {
  MovedBytes all;
  for_pools([&](const TieredPages& pages) { all = all + pages.offload().moved(); });
  return all;
}

OffloadTimes KvStore::take_times() {
  OffloadTimes times;
  if (!mover_) return times;
  times.copies = mover_->take_times();
  DiskTimes now;
  for_pools([&](const TieredPages& pages) { now = now + pages.offload().disk_times(); });
  times.disk_s = now.busy_s - disk_taken_.busy_s;
  times.waited_s = now.waited_s - disk_taken_.waited_s;
  disk_taken_ = now;
  return times;
}

PagesView KvStore::view(const Pools& pools, std::int64_t layer, bool gradients) const {
  const TieredPages& pages = *pools.pool(layer).pages;
  const DType type = shape_.types(layer).of(gradients);
  return {pages.pool().base(),
          pages.table(pools.index(layer)),
          pages.pool().page_bytes(),
          shape_.page_tokens,
          shape_.kv_heads,
          shape_.head_size,
          type,
          !gradients && is_page_code(type)};
}

}  // namespace longstride
