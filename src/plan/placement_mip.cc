#include "plan/placement_mip.h"

#include <algorithm>
#include <chrono>
#include <numeric>

#include "plan/placement_blocks.h"
#include "plan/storage_program.h"

namespace longstride {
namespace {

// Tensors below this share of the bound are placed last, in the gaps that the others leave.
constexpr double kTooSmallToMatter = 0.001;

class Placer {
 public:
  Placer(const WorkspaceTrace& trace, const PlacementLimits& limits)
      : trace_(trace), limits_(limits), live_(live_bytes_bound(trace)) {
    best_.bound = live_;
    best_.placement = place_by_orders(trace, live_);
  }

  BestPlacement place() {
    if (!is_good_enough()) {
      large_ = large_requests();
      const WorkspaceTrace core = part_of(trace_, large_);
      if (pairs_alive_together(core) <= limits_.pairs) place_at_once(core);
      if (!is_good_enough()) place_on_two_levels(core);
    }
    best_.seconds = elapsed();
    return std::move(best_);
  }

 private:
  bool is_good_enough() const {
    return static_cast<double>(best_.placement.bytes) <=
           static_cast<double>(best_.bound) * (1 + limits_.good_enough);
  }
  double elapsed() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

  std::vector<std::size_t> large_requests() const {
    std::vector<std::size_t> large;
    for (std::size_t i = 0; i < trace_.size(); ++i)
      if (static_cast<double>(trace_[i].bytes) >= kTooSmallToMatter * static_cast<double>(live_))
        large.push_back(i);
    return large;
  }

  StorageSolution solve(const WorkspaceTrace& trace, std::int64_t below) {
    const std::int64_t pairs = std::max<std::int64_t>(1, pairs_alive_together(trace));
    if (pairs > limits_.pairs || elapsed() >= limits_.seconds) return {};
    best_.searched = true;
    const std::int64_t nodes = limits_.nodes * PlacementLimits::kPairsPerNode / pairs;
    return solve_storage(
        trace, below,
        {std::clamp<std::int64_t>(nodes, 1, limits_.nodes), limits_.seconds - elapsed()});
  }

  void place_at_once(const WorkspaceTrace& core) {
    const StorageSolution solution = solve(core, best_.placement.bytes);
    // Fewer tensors never need more, so a bound for the large ones holds for all.
    best_.bound = std::max(best_.bound, solution.bound);
    if (solution.placement) offer(*solution.placement, PlacementMethod::kProgram);
  }

  void place_on_two_levels(const WorkspaceTrace& core) {
    TwoLevels levels(core);
    if (!levels.any()) return;
    for (std::size_t block = 0; block < levels.blocks(); ++block)
      levels.place_block(block, place_level(levels.inside(block)));
    const Placement outside = place_level(levels.outside());
    offer(levels.join(outside), PlacementMethod::kTwoLevels);
  }

  Placement place_level(const WorkspaceTrace& trace) {
    const std::int64_t bound = live_bytes_bound(trace);
    Placement best = place_by_orders(trace, bound);
    if (best.bytes > bound) {
      StorageSolution solution = solve(trace, best.bytes);
      if (solution.placement) best = std::move(*solution.placement);
    }
    return best;
  }

  // Takes a placement of the large requests if, with the others added, it is the best so far. In
  // the order of their addresses, none of them gets a higher one.
  void offer(const Placement& of_large, PlacementMethod method) {
    std::vector<std::size_t> order(large_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return of_large.offsets[a] < of_large.offsets[b];
    });
    for (std::size_t& i : order) i = large_[i];
    std::vector<std::size_t> small;
    for (std::size_t i = 0, next = 0; i < trace_.size(); ++i) {
      if (next < large_.size() && large_[next] == i)
        ++next;
      else
        small.push_back(i);
    }
    std::stable_sort(small.begin(), small.end(), [&](std::size_t a, std::size_t b) {
      return trace_[a].bytes > trace_[b].bytes;
    });
    order.insert(order.end(), small.begin(), small.end());
    Placement all = place_in_order(trace_, order);
    if (all.bytes >= best_.placement.bytes) return;
    best_.placement = std::move(all);
    best_.method = method;
  }

  const WorkspaceTrace& trace_;
  const PlacementLimits& limits_;
  const std::int64_t live_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::vector<std::size_t> large_;
  BestPlacement best_;
};

}  // namespace

std::string_view name_of(PlacementMethod method) {
  switch (method) {
    case PlacementMethod::kGreedy:
      return "greedy";
    case PlacementMethod::kProgram:
      return "program";
    case PlacementMethod::kTwoLevels:
      return "two levels";
  }
  return "";
}

BestPlacement place_best(const WorkspaceTrace& trace, const PlacementLimits& limits) {
  return Placer(trace, limits).place();
}

}  // namespace longstride
