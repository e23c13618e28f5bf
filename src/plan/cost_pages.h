// What pages move while the tasks of a step run, by counting: how many pages a task accesses, and
// which share of them the device cannot hold. No page is simulated. Nothing here grows if the plan
// gives pages more of the device.
//
// - Of the pages that every chunk accesses, as many stay on the device as fit beside those that
//   pass through; the others are fetched by every task that accesses them. So it is with dense
//   layers, whose next turn accesses all their pages again.
// - Pages that no chunk accesses until their own chunk's backward pass (those outside of windows,
//   and those that are not selected) leave first, and are fetched once.
// - Selected pages are mostly the same from chunk to chunk: this many are taken to be new. The
//   bound of the plan (union_pages) counts, not what data select.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/step_plan.h"

namespace longstride {

// Bytes.
struct TaskMoves {
  double in = 0, out = 0;            // to and from the device
  double disk_in = 0, disk_out = 0;  // the part of them that comes from disk and goes there
  double ahead = 0;                  // that can be fetched before attention begins
  bool late = false;                 // the pages are known only when attention begins
  bool any() const { return in + out > 0; }
};

// One pool of pages. In pages.
struct PageRoom {
  double here = 0;    // room on the device
  double most = 0;    // that exist at once
  double access = 0;  // of the largest access
  double host = 0;    // room in host memory; infinite if nothing goes to disk
  double bytes = 0;   // of a page

  bool holds_all() const { return here >= most; }
  // Of so many pages that are accessed again and again, those that are not on the device.
  double missing(double pages) const;
  // 1: copies overlap computing; 0: there is room for the largest access alone.
  double overlap() const;
  double ahead() const;
};

// For one sequence of one document. The arguments outlive it.
class PageMoves {
 public:
  PageMoves(const ModelConfig& config, const StepPlan& plan, const SequenceLayout& layout,
            const StepSchedule& schedule);

  // All tasks, in the order of the schedule.
  TaskMoves next(const Task& task, EpisodeKind episode);
  // Smaller than 1 if there is too little room to fetch ahead.
  double overlap() const;

 private:
  struct Pool : PageRoom {
    double layers = 0;
    std::vector<double> hot;  // by chunk: pages of its layers that the chunk's tasks access
    // Of keys and values.
    double existing = 0;
    double cold_per_chunk = 0, cold_evicted = 0;  // pages accessed once more only
  };
  // Pools of one kind, and which of them is a layer's.
  struct Pools {
    std::vector<Pool> all;
    std::vector<std::size_t> of_layer;
    Pool& of(const Task& task) { return all[of_layer[static_cast<std::size_t>(task.layer)]]; }
    const Pool& of(const Task& task) const {
      return all[of_layer[static_cast<std::size_t>(task.layer)]];
    }
  };
  Pools make_pools(const std::vector<PoolCapacity>& pools, const KvCapacity& capacity) const;
  void find_largest_accesses(const StepSchedule& schedule, std::int64_t pages_per_group);
  static void append(Pool& pool, double own, TaskMoves& moves);
  void visit_kv(const Pool& pool, const Task& task, bool first_pass, TaskMoves& moves) const;
  void visit_gradients(const Pool& pool, const Task& task, TaskMoves& moves) const;
  void fetch_own(const Pool& pool, const Task& task, TaskMoves& moves) const;
  bool is_dense(std::int64_t layer) const;
  double own(const Task& task) const;

  const ModelConfig& config_;
  const SparseLayers& sparse_;
  const SequenceLayout& layout_;
  Pools kv_, gradients_;
  bool moves_ = false;
};

}  // namespace longstride
