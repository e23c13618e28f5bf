// Pages in the map: how many exist at any time, and on which tier they are.
#include <string>

#include "plan/memory_map_parts.h"

namespace longstride {
namespace {

// Pages of all layers that exist, of one kind.
struct PageCount {
  std::int64_t now = 0;
  std::vector<MapLevel> levels = {{0.0, 0}};
  void add(double when, std::int64_t pages) {
    now += pages;
    levels.push_back({when, now});
  }
};

struct PageCounts {
  PageCount kv, gradients;
};

// A chunk's pages exist from its forward pass to its backward pass; a gradient page from its first
// access on, as in step_schedule.cc.
PageCounts count_pages(const TaskTimes& times, std::int64_t layers, std::int64_t pages) {
  PageCounts counts;
  std::vector<std::int64_t> first_accessed(static_cast<std::size_t>(layers), pages);
  times.for_tasks([&](const Task& task, double begin, double end) {
    if (task.append) counts.kv.add(begin, task.appended.size());
    if (task.kind == TaskKind::kRelease) counts.kv.add(end, -task.freed.size());
    if (task.kind != TaskKind::kLayerBackward) return;
    std::int64_t& first = first_accessed[static_cast<std::size_t>(task.layer)];
    first = std::min(first, task.freed.end);
    if (const std::int64_t accessed = task.visited.hull().begin; accessed < first) {
      counts.gradients.add(begin, first - accessed);
      first = accessed;
    }
    counts.kv.add(end, -task.freed.size());
    counts.gradients.add(end, -task.freed.size());
  });
  return counts;
}

// Where the pages of one kind go: the device first, then host memory, then the disk.
struct Tiers {
  std::string name;
  MapPart part;
  std::int64_t page_bytes = 0, device_pages = 0, group_bytes = 0;
  const OffloadCapacity& offload;
};

void add_tiers(MemoryMap& map, const PageCount& count, const Tiers& tiers) {
  const std::int64_t host_bytes = tiers.offload.host_records * tiers.group_bytes,
                     disk_bytes = tiers.offload.disk_records * tiers.group_bytes;
  std::vector<MapLevel> device, host, disk;
  for (const MapLevel& level : count.levels) {
    const std::int64_t here = std::min(level.bytes, tiers.device_pages),
                       excess = (level.bytes - here) * tiers.page_bytes,
                       in_host = std::min(excess, host_bytes);
    device.push_back({level.begin, here * tiers.page_bytes});
    host.push_back({level.begin, in_host});
    disk.push_back({level.begin, std::min(excess - in_host, disk_bytes)});
  }
  if (const MapTenant* pool = find_tenant(map, tiers.part))
    map.fills.push_back({tiers.part, pool->address, simplified(device, map.end)});
  if (host_bytes > 0)
    map.host.push_back({tiers.name, tiers.part, host_bytes, simplified(host, map.end)});
  if (disk_bytes > 0)
    map.disk.push_back({tiers.name, tiers.part, disk_bytes, simplified(disk, map.end)});
  if (disk_bytes > 0) {
    const std::int64_t buffers = tiers.offload.disk_buffers * tiers.group_bytes;
    map.host.push_back(
        {"disk buffers of " + tiers.name, MapPart::kDiskBuffers, buffers, {{0.0, buffers}}});
  }
}

}  // namespace

void add_pages(MemoryMap& map, const StepPlan& plan, const TaskTimes& times,
               const MemoryMapInput& input) {
  const auto fixed = [](std::vector<MapLane>& lanes, const std::vector<NamedBytes>& tenants) {
    for (const NamedBytes& tenant : tenants)
      if (tenant.bytes > 0)
        lanes.push_back({tenant.name, MapPart::kFixed, tenant.bytes, {{0.0, tenant.bytes}}});
  };
  fixed(map.host, input.host);
  fixed(map.disk, input.disk);
  const KvCapacity& pages = plan.pages;
  const auto page_bytes = [](std::int64_t bytes, std::int64_t count) {
    return count == 0 ? 0 : bytes / count;
  };
  const std::int64_t kv = page_bytes(plan.memory.kv_pages, pages.kv_pages),
                     gradient = page_bytes(plan.memory.kv_gradient_pages, pages.gradient_pages);
  const PageCounts counts = count_pages(times, map.layers, plan.layout().pages());
  add_tiers(map, counts.kv,
            {"KV pages", MapPart::kKvPages, kv, pages.kv_pages, pages.pages_per_group * kv,
             pages.kv_offload});
  add_tiers(map, counts.gradients,
            {"KV gradient pages", MapPart::kKvGradients, gradient, pages.gradient_pages,
             pages.pages_per_group * gradient, pages.gradient_offload});
}

}  // namespace longstride
