// Pages in the map: how many exist at any time, and on which tier they are.
#include <algorithm>
#include <map>
#include <string>

#include "plan/memory_map_parts.h"
#include "schedule/page_counter.h"

namespace longstride {
namespace {

// Where the pages of one kind are: the device first, then host memory, then the disk.
class PageTiers {
 public:
  PageTiers(const std::vector<PoolCapacity>& pools, std::int64_t pages_per_group)
      : pools_(pools), now_(pools.size()) {
    for (std::size_t p = 0; p < pools.size(); ++p) {
      bytes_.push_back(bytes_of(pools[p], pages_per_group));
      for (const std::int64_t layer : pools[p].layers) pool_of_[layer] = p;
    }
  }

  void add(double when, std::int64_t layer, std::int64_t pages) {
    if (pages == 0) return;
    now_[pool_of_.at(layer)] += pages;
    std::int64_t device = 0, host = 0, disk = 0;
    for (std::size_t p = 0; p < pools_.size(); ++p) {
      const std::int64_t here = std::min(now_[p], pools_[p].pages),
                         excess = (now_[p] - here) * pools_[p].page_bytes,
                         in_host = std::min(excess, bytes_[p].host);
      device += here * pools_[p].page_bytes;
      host += in_host;
      disk += std::min(excess - in_host, bytes_[p].disk);
    }
    device_.push_back({when, device});
    host_.push_back({when, host});
    disk_.push_back({when, disk});
  }

  void finish(MemoryMap& map, const std::string& name, MapPart part) const {
    std::int64_t host = 0, disk = 0, buffers = 0;
    for (const PoolBytes& pool : bytes_) {
      host += pool.host;
      disk += pool.disk;
      buffers += pool.disk_buffers;
    }
    if (const MapTenant* tenant = find_tenant(map, part))
      map.fills.push_back({part, tenant->address, simplified(device_, map.end)});
    if (host > 0) map.host.push_back({name, part, host, simplified(host_, map.end)});
    if (disk > 0) map.disk.push_back({name, part, disk, simplified(disk_, map.end)});
    if (buffers > 0)
      map.host.push_back(
          {"disk buffers of " + name, MapPart::kDiskBuffers, buffers, {{0.0, buffers}}});
  }

 private:
  const std::vector<PoolCapacity>& pools_;
  std::vector<PoolBytes> bytes_;
  std::map<std::int64_t, std::size_t> pool_of_;  // by layer
  std::vector<std::int64_t> now_;                // pages that exist, by pool
  std::vector<MapLevel> device_ = {{0.0, 0}}, host_ = {{0.0, 0}}, disk_ = {{0.0, 0}};
};

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
  PageTiers kv(pages.kv, pages.pages_per_group), gradients(pages.gradients, pages.pages_per_group);
  PageCounter counter(map.layers, plan.layout().pages());
  times.for_tasks([&](const Task& task, double begin, double end) {
    if (task.layer < 0) return;
    const PageCounts made = counter.created(task), freed = PageCounter::freed(task);
    kv.add(begin, task.layer, made.kv);
    gradients.add(begin, task.layer, made.gradients);
    kv.add(end, task.layer, -freed.kv);
    gradients.add(end, task.layer, -freed.gradients);
  });
  kv.finish(map, "KV pages", MapPart::kKvPages);
  gradients.finish(map, "KV gradient pages", MapPart::kKvGradients);
}

}  // namespace longstride
