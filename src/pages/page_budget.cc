#include "pages/page_budget.h"

#include <algorithm>
#include <unordered_map>

#include "base/error.h"
#include "base/sizes.h"

namespace longstride {
namespace {

std::string text(std::int64_t bytes) { return format_bytes(static_cast<double>(bytes)); }

// Pages that have to be on the device together.
struct Needed {
  std::int64_t kv = 0, gradients = 0;
};

// Dense layers access all pages of a chunk together. Selected pages move one by one.
std::int64_t group_pages(const SequenceLayout& layout, const StepSchedule& schedule) {
  return schedule.sparse ? 1 : std::min(layout.chunk_tokens / layout.page_tokens, layout.pages());
}

// Pages of the groups that a segment accesses. A segment that is a cut may begin within a group, so
// this is the most that one of its length can access; if documents may begin anywhere, a segment
// may be a chunk longer.
std::int64_t pages_accessed(const SequenceLayout& layout, const KeySegment& segment,
                            const StepSchedule& schedule) {
  const std::int64_t P = layout.page_tokens, per = group_pages(layout, schedule),
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

// The largest working set of one access: the whole groups of a segment of a task's visited pages,
// plus the pages that the task appends.
Needed largest_access(const SequenceLayout& layout, const StepSchedule& schedule) {
  Needed largest;
  // The layers of a chunk share their lists, which are long if the context is.
  std::unordered_map<const void*, LargestSegments> known;
  for (const Episode& episode : schedule.episodes)
    for (const Task& task : episode.tasks) {
      const std::int64_t own = task.append ? task.appended.size() : 0;
      largest.kv = std::max(largest.kv, own);
      if (task.segments == nullptr) continue;
      const auto [at, added] = known.try_emplace(task.segments.get());
      if (added) at->second = largest_segments(layout, schedule, *task.segments);
      LargestSegments pages = at->second;
      if (task.sparse)  // whatever the segments
        for (std::int64_t* most : {&pages.last, &pages.other})
          if (*most > 0) *most = task.most_visited;
      largest.kv = std::max({largest.kv, pages.last, pages.other > 0 ? pages.other + own : 0});
      if (task.kind == TaskKind::kLayerBackward)
        largest.gradients = std::max({largest.gradients, pages.last, pages.other});
    }
  return {std::min(largest.kv, schedule.peak_kv_pages),
          std::min(largest.gradients, schedule.peak_gradient_pages)};
}

// One is computed on, one is fetched, one is evicted; capacity beyond that only saves copies.
constexpr std::int64_t kAccessesAtOnce = 3;

std::int64_t between(std::int64_t from, std::int64_t to, double share) {
  return from + static_cast<std::int64_t>(static_cast<double>(to - from) * share);
}

// The most groups that can be offloaded at once, if `most` pages exist and the device holds `here`.
// Groups are evicted only if an access's pages do not fit, so fewer pages than those of its groups
// and one more are free then; and a layer has at most two groups of which only some pages exist.
std::int64_t places_needed(std::int64_t layers, std::int64_t groups, std::int64_t per,
                           std::int64_t here, std::int64_t most, std::int64_t largest) {
  return std::min(layers * groups, (most - here + largest) / per + 2 * layers + 4);
}

// Records on their way to or from the disk: few large ones, and of single pages as many as a disk
// needs to have in flight.
std::int64_t disk_buffers(std::int64_t record_bytes, std::int64_t records) {
  constexpr std::int64_t kLeast = 12, kBytes = std::int64_t{256} << 20;
  return std::clamp(records, kLeast, std::max(kLeast, kBytes / record_bytes));
}

// How many gradient pages the device has to hold so that `host` bytes are enough for the others.
std::int64_t gradients_kept(const SequenceLayout& layout, const StepSchedule& schedule,
                            const KvShape& shape, std::int64_t host, std::int64_t largest) {
  const std::int64_t per = group_pages(layout, schedule), groups = (layout.pages() + per - 1) / per,
                     most = schedule.peak_gradient_pages,
                     places = host / (per * shape.gradient_page_bytes());
  std::int64_t least = 0, enough = most;
  while (least < enough) {
    const std::int64_t here = least + (enough - least) / 2;
    if (places_needed(shape.layers, groups, per, here, most, largest) <= places)
      enough = here;
    else
      least = here + 1;
  }
  return enough;
}

std::int64_t streaming_bytes(const Needed& least, const StepSchedule& schedule,
                             const KvShape& shape) {
  return std::min(kAccessesAtOnce * least.kv, schedule.peak_kv_pages) * shape.page_bytes() +
         std::min(kAccessesAtOnce * least.gradients, schedule.peak_gradient_pages) *
             shape.gradient_page_bytes();
}

}  // namespace

std::int64_t least_device_bytes(const SequenceLayout& layout, const StepSchedule& schedule,
                                const KvShape& shape) {
  const Needed least = largest_access(layout, schedule);
  return least.kv * shape.page_bytes() + least.gradients * shape.gradient_page_bytes();
}

std::int64_t streaming_device_bytes(const SequenceLayout& layout, const StepSchedule& schedule,
                                    const KvShape& shape) {
  return streaming_bytes(largest_access(layout, schedule), schedule, shape);
}

WideCapacity wide_capacity(const SequenceLayout& layout, const StepSchedule& schedule,
                           const KvShape& shape) {
  const Needed most = largest_access(layout, schedule);
  return {.kv_pages = is_page_code(shape.dtype) ? most.kv : 0,
          .gradient_pages = is_page_code(shape.gradient_dtype) ? most.gradients : 0};
}

PageSpread spread_pages(const SequenceLayout& layout, const StepSchedule& schedule,
                        const KvShape& shape, const PageBudget& budget) {
  const std::int64_t kv_page = shape.page_bytes(), gradient_page = shape.gradient_page_bytes(),
                     all = schedule.peak_kv_pages * kv_page +
                           schedule.peak_gradient_pages * gradient_page;
  PageSpread spread;
  KvCapacity& capacity = spread.capacity;
  capacity.logical_pages = layout.pages();
  capacity.pages_per_group = group_pages(layout, schedule);
  capacity.kv_pages = schedule.peak_kv_pages;
  capacity.gradient_pages = schedule.peak_gradient_pages;
  const Needed least = largest_access(layout, schedule);
  if (budget.device != PageBudget::kAll && budget.device < all) {
    const std::int64_t needed = least.kv * kv_page + least.gradients * gradient_page,
                       streaming = streaming_bytes(least, schedule, shape);
    if (budget.device < needed)
      throw Error(
          fmt::format("{} for pages on the device is too little: the largest working set of {} "
                      "tokens needs {}",
                      text(std::max<std::int64_t>(budget.device, 0)), layout.tokens, text(needed)),
          "raise memory.gpu (--page-memory in bench step), shorten the context, or make the chunk "
          "smaller");
    // First, capacity to compute, fetch and evict at the same time, for both kinds.
    const Needed most{capacity.kv_pages, capacity.gradient_pages};
    Needed streams{std::min(kAccessesAtOnce * least.kv, most.kv),
                   std::min(kAccessesAtOnce * least.gradients, most.gradients)};
    if (budget.device < streaming) {
      const double share = static_cast<double>(budget.device - needed) /
                           static_cast<double>(std::max<std::int64_t>(1, streaming - needed));
      capacity.kv_pages = between(least.kv, streams.kv, share);
      capacity.gradient_pages = between(least.gradients, streams.gradients, share);
    } else {
      // Then the smaller kind stays on the device: few bytes save many copies. Sparse layers read
      // K/V in all three passes and gradients in one, so gradients stay only if host memory has no
      // room for them.
      std::int64_t rest = budget.device - streaming;
      const auto grow = [&](std::int64_t from, std::int64_t to, std::int64_t page_bytes) {
        const std::int64_t pages = std::min(to - from, rest / page_bytes);
        rest -= pages * page_bytes;
        return from + pages;
      };
      if (schedule.sparse && budget.host != PageBudget::kAll) {
        const std::int64_t kept =
            gradients_kept(layout, schedule, shape, budget.host, least.gradients);
        streams.gradients =
            grow(streams.gradients, std::max(streams.gradients, kept), gradient_page);
      }
      const bool kv_first = schedule.sparse || most.kv * kv_page <= most.gradients * gradient_page;
      if (kv_first) capacity.kv_pages = grow(streams.kv, most.kv, kv_page);
      capacity.gradient_pages = grow(streams.gradients, most.gradients, gradient_page);
      if (!kv_first) capacity.kv_pages = grow(streams.kv, most.kv, kv_page);
    }
  }
  spread.kv_bytes = capacity.kv_pages * kv_page;
  spread.gradient_bytes = capacity.gradient_pages * gradient_page;

  // Groups that do not fit on the device go to host memory first, then to the disk.
  std::int64_t host_left = budget.host;
  const auto place = [&](OffloadCapacity& offload, std::int64_t page_bytes, std::int64_t here,
                         std::int64_t most, std::int64_t accessed) {
    if (here == most) return;
    const std::int64_t per = capacity.pages_per_group, group_bytes = per * page_bytes,
                       groups = places_needed(shape.layers, (layout.pages() + per - 1) / per, per,
                                              here, most, accessed);
    offload.disk_directory = budget.disk_directory;
    offload.host_records =
        host_left == PageBudget::kAll ? groups : std::min(groups, host_left / group_bytes);
    offload.disk_records = groups - offload.host_records;
    offload.disk_buffers = disk_buffers(group_bytes, offload.disk_records);
    if (host_left != PageBudget::kAll) host_left -= offload.host_records * group_bytes;
    spread.host_bytes += offload.host_records * group_bytes;
    spread.disk_bytes += offload.disk_records * group_bytes;
    if (offload.disk_records > 0) spread.host_bytes += offload.disk_buffers * group_bytes;
  };
  const auto place_kv = [&] {
    place(capacity.kv_offload, kv_page, capacity.kv_pages, schedule.peak_kv_pages, least.kv);
  };
  // Gradients of selected pages go to and fro, one page at a time: too much for a disk.
  if (!schedule.sparse) place_kv();
  place(capacity.gradient_offload, gradient_page, capacity.gradient_pages,
        schedule.peak_gradient_pages, least.gradients);
  if (schedule.sparse) place_kv();
  if (schedule.sparse && capacity.gradient_offload.disk_records > 0)
    throw Error(
        fmt::format(
            "gradients of pages that leave the device need {} of host memory, and {} are "
            "allowed: sparse layers keep none on disk",
            text((capacity.gradient_offload.records()) * capacity.pages_per_group * gradient_page),
            text(budget.host)),
        "raise memory.host or memory.gpu (in bench step: --host-memory, --page-memory), set "
        "numerics.kv_gradient_dtype to \"bf16\", or shorten the context");
  if (budget.disk != PageBudget::kAll && spread.disk_bytes > budget.disk)
    throw Error(
        fmt::format("offloaded pages need {}: {} of it fit in host memory, and {} are allowed on "
                    "disk",
                    text(spread.host_bytes + spread.disk_bytes), text(spread.host_bytes),
                    text(budget.disk)),
        "raise memory.host or memory.disk with memory.disk_path (in bench step: --host-memory, "
        "--disk-memory, --disk-path), or shorten the context");
  return spread;
}

}  // namespace longstride
