#include "pages/page_needs.h"

#include <algorithm>
#include <unordered_map>

#include "pages/hot_pages.h"
#include "schedule/page_counter.h"

namespace longstride {
namespace {

// Pages of the groups that a segment accesses. A segment that is a cut may begin within a group, so
// this is the most that one of its length can access; if documents may begin anywhere, a segment
// may be a chunk longer.
std::int64_t pages_accessed(const SequenceLayout& layout, const KeySegment& segment,
                            const StepSchedule& schedule) {
  const std::int64_t P = layout.page_tokens, per = pages_per_group(layout, schedule),
                     slack = schedule.packed ? layout.chunk_tokens / P : 0,
                     begin = segment.begin / P, end = (segment.end + P - 1) / P,
                     groups = (layout.pages() + per - 1) / per;
  if (segment.is_all()) return ((end + per - 1) / per - begin / per) * per;
  return std::min((end - begin + slack + per - 2) / per + 1, groups) * per;
}

// Pages of a list's largest segments: of the one that is the last, and of the others.
struct LargestSegments {
  std::int64_t last = 0, other = 0;
};

LargestSegments largest_segments(const SequenceLayout& layout, const StepSchedule& schedule,
                                 const std::vector<KeySegment>& list) {
  LargestSegments largest;
  for (const KeySegment& segment : list) {
    std::int64_t& most = segment.last ? largest.last : largest.other;
    most = std::max(most, pages_accessed(layout, segment, schedule));
  }
  return largest;
}

// The needs of the pools of one kind, and whose layers they are.
struct Kind {
  std::vector<PoolNeeds> pools;
  std::vector<LayerPlace> places;
  std::vector<std::int64_t> now;  // pages that exist, by pool

  Kind(const KvShape& shape, bool gradients) {
    const std::vector<LayerPool> all = pools_of(shape, gradients);
    places = places_of(all, shape.layers);
    for (const LayerPool& pool : all)
      pools.push_back(
          {.gradients = gradients, .layers = pool.layers, .page_bytes = pool.page_bytes});
    now.resize(pools.size());
  }
  std::size_t pool(std::int64_t layer) const {
    return static_cast<std::size_t>(places.at(static_cast<std::size_t>(layer)).pool);
  }
  PoolNeeds& of(std::int64_t layer) { return pools[pool(layer)]; }
  void add(std::int64_t layer, std::int64_t pages) {
    const std::size_t p = pool(layer);
    now[p] += pages;
    pools[p].most = std::max(pools[p].most, now[p]);
  }
};

}  // namespace

std::int64_t pages_per_group(const SequenceLayout& layout, const StepSchedule& schedule) {
  return schedule.sparse ? 1 : std::min(layout.chunk_tokens / layout.page_tokens, layout.pages());
}

// The largest working set of one access: the whole groups of a segment of a task's visited pages,
// plus the pages that the task appends.
std::vector<PoolNeeds> page_needs(const SequenceLayout& layout, const StepSchedule& schedule,
                                  const KvShape& shape) {
  Kind kv(shape, false), gradients(shape, true);
  PageCounter counter(shape.layers, layout.pages());
  // The layers of a chunk share their lists, which are long if the context is.
  std::unordered_map<const void*, LargestSegments> known;
  for (const Episode& episode : schedule.episodes)
    for (const Task& task : episode.tasks) {
      if (task.layer < 0) continue;
      const PageCounts made = counter.created(task), freed = PageCounter::freed(task);
      kv.add(task.layer, made.kv);
      gradients.add(task.layer, made.gradients);
      kv.add(task.layer, -freed.kv);
      gradients.add(task.layer, -freed.gradients);
      PoolNeeds &keys = kv.of(task.layer), &sums = gradients.of(task.layer);
      keys.sparse = keys.sparse || task.sparse;
      sums.sparse = sums.sparse || task.sparse;
      const std::int64_t own = task.append ? task.appended.size() : 0;
      keys.least = std::max(keys.least, own);
      if (task.segments == nullptr) continue;
      if (task.visited.hull().begin == 0 && task.chunk + 1 == layout.chunks())
        keys.windows = sums.windows = false;
      const auto [at, added] = known.try_emplace(task.segments.get());
      if (added) at->second = largest_segments(layout, schedule, *task.segments);
      LargestSegments pages = at->second;
      if (task.sparse)  // whatever the segments
        for (std::int64_t* most : {&pages.last, &pages.other})
          if (*most > 0) *most = task.most_visited;
      keys.least = std::max({keys.least, pages.last, pages.other > 0 ? pages.other + own : 0});
      if (task.kind == TaskKind::kLayerBackward)
        sums.least = std::max({sums.least, pages.last, pages.other});
    }
  std::vector<PoolNeeds> all = std::move(kv.pools);
  all.insert(all.end(), gradients.pools.begin(), gradients.pools.end());
  for (PoolNeeds& pool : all) pool.least = std::min(pool.least, pool.most);
  return all;
}

std::int64_t least_device_bytes(const SequenceLayout& layout, const StepSchedule& schedule,
                                const KvShape& shape) {
  std::int64_t bytes = 0;
  for (const PoolNeeds& pool : page_needs(layout, schedule, shape))
    bytes += pool.least * pool.page_bytes;
  return bytes;
}

std::int64_t streaming_device_bytes(const SequenceLayout& layout, const StepSchedule& schedule,
                                    const KvShape& shape) {
  std::int64_t bytes = 0;
  for (const PoolNeeds& pool : page_needs(layout, schedule, shape))
    bytes += pool.streaming() * pool.page_bytes;
  return bytes;
}

WideCapacity wide_capacity(const SequenceLayout& layout, const StepSchedule& schedule,
                           const KvShape& shape) {
  WideCapacity wide;
  const std::vector<PoolNeeds> needs = page_needs(layout, schedule, shape);
  std::size_t next = 0;
  for (const bool gradients : {false, true})
    for (const LayerPool& pool : pools_of(shape, gradients)) {
      const std::int64_t least = needs[next++].least;
      std::int64_t& pages = gradients ? wide.gradient_pages : wide.kv_pages;
      if (is_page_code(pool.type)) pages = std::max(pages, least);
    }
  if (wide.gradient_pages == 0) return wide;
  wide.hot_pages = most_hot_pages(shape, layout) * layers_with_hot_pages(shape, schedule);
  return wide;
}

}  // namespace longstride
