#include "pages/page_budget.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "base/error.h"
#include "base/sizes.h"

namespace longstride {
namespace {

std::string text(std::int64_t bytes) { return format_bytes(static_cast<double>(bytes)); }

std::int64_t between(std::int64_t from, std::int64_t to, double share) {
  return from + static_cast<std::int64_t>(static_cast<double>(to - from) * share);
}

// Records on their way to or from the disk: few large ones, and of single pages as many as a disk
// needs to have in flight.
std::int64_t disk_buffers(std::int64_t record_bytes, std::int64_t records) {
  constexpr std::int64_t kLeast = 12, kBytes = std::int64_t{256} << 20;
  return std::clamp(records, kLeast, std::max(kLeast, kBytes / record_bytes));
}

// Distributes the pools of one step.
class Spread {
 public:
  Spread(const SequenceLayout& layout, const StepSchedule& schedule, const KvShape& shape,
         const PageBudget& budget)
      : layout_(layout),
        schedule_(schedule),
        budget_(budget),
        per_(pages_per_group(layout, schedule)),
        needs_(page_needs(layout, schedule, shape)),
        pages_(needs_.size()),
        offload_(needs_.size()),
        host_left_(budget.host) {}

  PageSpread run() {
    share_device();
    for (const std::size_t p : by_host()) place(p);
    refuse_sparse_gradients_on_disk();
    if (budget_.disk != PageBudget::kAll && spread_.disk_bytes > budget_.disk)
      throw Error(
          fmt::format("offloaded pages need {}: {} of it fit in host memory, and {} are allowed on "
                      "disk",
                      text(spread_.host_bytes + spread_.disk_bytes), text(spread_.host_bytes),
                      text(budget_.disk)),
          "raise memory.host or memory.disk with memory.disk_path (in bench step: --host-memory, "
          "--disk-memory, --disk-path), or shorten the context");
    spread_.capacity.logical_pages = layout_.pages();
    spread_.capacity.pages_per_group = per_;
    for (std::size_t p = 0; p < needs_.size(); ++p) {
      const bool gradients = needs_[p].gradients;
      (gradients ? spread_.capacity.gradients : spread_.capacity.kv)
          .push_back(
              {needs_[p].layers, needs_[p].page_bytes, needs_[p].most, pages_[p], offload_[p]});
      (gradients ? spread_.gradient_bytes : spread_.kv_bytes) += pages_[p] * needs_[p].page_bytes;
    }
    return spread_;
  }

 private:
  template <class F>
  std::int64_t sum(const F& pages_of) const {
    std::int64_t bytes = 0;
    for (const PoolNeeds& pool : needs_) bytes += pages_of(pool) * pool.page_bytes;
    return bytes;
  }

  void share_device() {
    for (std::size_t p = 0; p < needs_.size(); ++p) pages_[p] = needs_[p].most;
    if (budget_.device == PageBudget::kAll ||
        budget_.device >= sum([](const PoolNeeds& p) { return p.most; }))
      return;
    const std::int64_t needed = sum([](const PoolNeeds&p) { return p.least; }),
                       streaming = sum([](const PoolNeeds&p) { return p.streaming(); });
    if (budget_.device < needed)
      throw Error(
          fmt::format("{} for pages on the device is too little: the largest working set of {} "
                      "tokens needs {}",
                      text(std::max<std::int64_t>(budget_.device, 0)), layout_.tokens,
                      text(needed)),
          "raise memory.gpu (--page-memory in bench step), shorten the context, or make the chunk "
          "smaller");
    // First, capacity to compute, fetch and evict at the same time, for all pools.
    const double share = static_cast<double>(budget_.device - needed) /
                         static_cast<double>(std::max<std::int64_t>(1, streaming - needed));
    for (std::size_t p = 0; p < needs_.size(); ++p)
      pages_[p] = budget_.device < streaming
                      ? between(needs_[p].least, needs_[p].streaming(), share)
                      : needs_[p].streaming();
    if (budget_.device < streaming) return;
    // Then few bytes save many copies.
    std::int64_t rest = budget_.device - streaming, host = budget_.host;
    const auto grow = [&](std::size_t p, std::int64_t to) {
      const std::int64_t pages =
          std::min(std::max(to, pages_[p]) - pages_[p], rest / needs_[p].page_bytes);
      rest -= pages * needs_[p].page_bytes;
      pages_[p] += pages;
    };
    const std::vector<std::size_t> order = by_worth();
    for (const std::size_t p : order)
      if (needs_[p].gradients && needs_[p].sparse && host != PageBudget::kAll) {
        grow(p, kept_for_want_of(host, needs_[p]));
        host -= std::min(host, places_needed(needs_[p], pages_[p]) * per_ * needs_[p].page_bytes);
      }
    for (const std::size_t p : order) grow(p, needs_[p].most);
  }

  // Pools in the order in which they get capacity beyond streaming. Sparse layers read K/V in all
  // three passes and gradients in one.
  std::vector<std::size_t> by_worth() const {
    return sorted([&](const PoolNeeds& p) {
      const int what = p.sparse ? 0 : p.windows && schedule_.sparse ? 2 : 1;
      return std::tuple(what, p.sparse ? 0 : p.bytes(), p.gradients);
    });
  }

  // And in which they get host memory: what may go to disk comes last.
  std::vector<std::size_t> by_host() const {
    return sorted([&](const PoolNeeds& p) {
      return std::tuple(p.gradients != schedule_.sparse, schedule_.sparse && !p.sparse);
    });
  }

  template <class Key>
  std::vector<std::size_t> sorted(const Key& key) const {
    std::vector<std::size_t> order(needs_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, {}, [&](std::size_t p) { return key(needs_[p]); });
    return order;
  }

  // The most groups that can be offloaded at once if the device holds `here` pages. Groups are
  // evicted only if an access's pages do not fit, so fewer pages than those of its groups and one
  // more are free then; and a layer has at most two groups of which only some pages exist.
  std::int64_t places_needed(const PoolNeeds& pool, std::int64_t here) const {
    const std::int64_t layers = std::ssize(pool.layers),
                       groups = layers * ((layout_.pages() + per_ - 1) / per_);
    return std::min(groups, (pool.most - here + pool.least) / per_ + 2 * layers + 4);
  }

  // How many pages the device has to hold so that `host` bytes are enough for the others.
  std::int64_t kept_for_want_of(std::int64_t host, const PoolNeeds& pool) const {
    const std::int64_t places = host / (per_ * pool.page_bytes);
    std::int64_t least = 0, enough = pool.most;
    while (least < enough) {
      const std::int64_t here = least + (enough - least) / 2;
      if (places_needed(pool, here) <= places)
        enough = here;
      else
        least = here + 1;
    }
    return enough;
  }

  // Groups that do not fit on the device go to host memory first, then to the disk.
  void place(std::size_t p) {
    const PoolNeeds& pool = needs_[p];
    if (pages_[p] == pool.most) return;
    const std::int64_t group_bytes = per_ * pool.page_bytes,
                       groups = places_needed(pool, pages_[p]);
    OffloadCapacity& offload = offload_[p];
    offload.disk_directory = budget_.disk_directory;
    offload.host_records =
        host_left_ == PageBudget::kAll ? groups : std::min(groups, host_left_ / group_bytes);
    offload.disk_records = groups - offload.host_records;
    offload.disk_buffers = disk_buffers(group_bytes, offload.disk_records);
    if (host_left_ != PageBudget::kAll) host_left_ -= offload.host_records * group_bytes;
    spread_.host_bytes += offload.host_records * group_bytes;
    spread_.disk_bytes += offload.disk_records * group_bytes;
    if (offload.disk_records > 0) spread_.host_bytes += offload.disk_buffers * group_bytes;
  }

  // They go to and fro, one page at a time: too much for a disk.
  void refuse_sparse_gradients_on_disk() const {
    std::int64_t bytes = 0;
    bool on_disk = false;
    for (std::size_t p = 0; p < needs_.size(); ++p) {
      if (!needs_[p].gradients || !needs_[p].sparse) continue;
      bytes += offload_[p].records() * per_ * needs_[p].page_bytes;
      on_disk = on_disk || offload_[p].disk_records > 0;
    }
    if (on_disk)
      throw Error(
          fmt::format("gradients of pages that leave the device need {} of host memory, and {} are "
                      "allowed: sparse layers keep none on disk",
                      text(bytes), text(budget_.host)),
          "raise memory.host or memory.gpu (in bench step: --host-memory, --page-memory), set "
          "numerics.kv_gradient_dtype to \"bf16\" or \"int8\", or shorten the context");
  }

  const SequenceLayout& layout_;
  const StepSchedule& schedule_;
  const PageBudget& budget_;
  const std::int64_t per_;
  const std::vector<PoolNeeds> needs_;
  std::vector<std::int64_t> pages_;  // on the device, by pool
  std::vector<OffloadCapacity> offload_;
  std::int64_t host_left_;
  PageSpread spread_;
};

}  // namespace

PageSpread spread_pages(const SequenceLayout& layout, const StepSchedule& schedule,
                        const KvShape& shape, const PageBudget& budget) {
  return Spread(layout, schedule, shape, budget).run();
}

}  // namespace longstride
