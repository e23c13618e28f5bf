// The paged keys and values of all layers, and their gradients. Pages that do not fit on the device
// are offloaded; those that a task accesses are on the device by then. Not thread-safe: the thread
// that runs the step owns it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "offload/offload_times.h"
#include "pages/kv_shape.h"
#include "pages/page_store.h"
#include "pages/tiered_pages.h"
#include "schedule/step_schedule.h"
#include "tensor/pages_view.h"

namespace longstride {

// The late accesses of a step: those of sparse tasks, by chunk and layer. Selecting the pages of
// one resolves all of them.
class LateAccesses {
 public:
  struct Access {
    std::int64_t number = 0;  // in the layer's pool
    bool gradients = false;
  };
  explicit LateAccesses(std::int64_t layers) : layers_(layers) {}
  void add(std::int64_t chunk, std::int64_t layer, Access access);
  template <class F>
  void for_each(std::int64_t chunk, std::int64_t layer, const F& f) const {
    for (std::int64_t i = first_.at(static_cast<std::size_t>(chunk * layers_ + layer)); i >= 0;
         i = entries_[static_cast<std::size_t>(i)].next)
      f(entries_[static_cast<std::size_t>(i)].access);
  }

 private:
  struct Entry {
    Access access;
    std::int64_t next = -1;
  };
  std::int64_t layers_;
  std::vector<std::int64_t> first_;  // by chunk, then layer; -1: none
  std::vector<Entry> entries_;
};

// The accesses of a step by pool, with the layers of each numbered from 0: one per task for all its
// visited pages, or one per segment. Those of sparse tasks are late.
struct KvAccesses {
  std::vector<AccessList> kv, gradients;
  LateAccesses late;
};
KvAccesses list_accesses(const StepSchedule& schedule, const KvShape& shape, bool in_segments);

class KvStore final : public PageStore {
 public:
  // Copies go through `mover`; null: makes one, if anything may be offloaded.
  KvStore(Device& device, const KvShape& shape, const KvCapacity& capacity,
          std::unique_ptr<Mover> mover = nullptr);

  // Begins a sequence. Requires that the previous one has been released.
  void begin(const StepSchedule& schedule);
  void enter(const Task& task) override;
  bool comes_in_segments(const Task& task) const override {
    return mover_ != nullptr || task.sparse;
  }
  void enter_segment(const Task& task, std::size_t segment) override;
  void select(const Task& task, const PageSet& pages) override;
  void leave(const Task& task) override;
  // Releases all pages, after an interrupted step.
  void release_all();
  // Waits for copies in flight.
  void finish();

  const KvShape& shape() const { return shape_; }
  // The pages of the visit of this layer's that was entered last.
  PageSet entered(std::int64_t layer) const {
    const Pool& pool = kv_.pool(layer);
    return pool.pages->pages_of(pool.next - 1);
  }

  PagesView kv(std::int64_t layer) const override { return view(kv_, layer, false); }
  PagesView gradients(std::int64_t layer) const override { return view(gradients_, layer, true); }
  const PagePool& kv_pool(std::int64_t layer = 0) const { return kv_.pool(layer).pages->pool(); }
  const PagePool& gradient_pool(std::int64_t layer = 0) const {
    return gradients_.pool(layer).pages->pool();
  }
  // Pages of all pools at their fullest.
  std::int64_t peak_kv_pages() const { return kv_.peak(); }
  std::int64_t peak_gradient_pages() const { return gradients_.peak(); }
  // Bytes moved since construction.
  MovedBytes moved() const;
  // Times since the last call; complete after finish().
  OffloadTimes take_times();

 private:
  struct Pool {
    std::unique_ptr<TieredPages> pages;
    std::int64_t next = 0;  // the next access to begin
  };
  // All pools of one kind.
  struct Pools {
    std::vector<Pool> all;
    std::vector<LayerPlace> places;  // by layer

    const LayerPlace& place(std::int64_t layer) const {
      return places.at(static_cast<std::size_t>(layer));
    }
    const Pool& pool(std::int64_t layer) const {
      return all[static_cast<std::size_t>(place(layer).pool)];
    }
    Pool& pool(std::int64_t layer) { return all[static_cast<std::size_t>(place(layer).pool)]; }
    std::int64_t index(std::int64_t layer) const { return place(layer).index; }
    std::int64_t peak() const;
    void begin(std::vector<AccessList> accesses);
    void enter_next(std::int64_t layer);
    void leave_last(std::int64_t layer);
    void release(std::int64_t layer, PageRun run);
  };
  static Pools make_pools(Device& device, Mover* mover, const KvShape& shape,
                          const KvCapacity& capacity, bool gradients);
  template <class F>
  void for_pools(const F& f) const;
  PagesView view(const Pools& pools, std::int64_t layer, bool gradients) const;
  void enter_visited(const Task& task);
  void leave_visited(const Task& task);

  KvShape shape_;
  std::unique_ptr<Mover> mover_;  // null if nothing is offloaded
  Pools kv_, gradients_;
  LateAccesses late_;
  std::int64_t appended_ = -1;  // the access to a task's own pages
  DiskTimes disk_taken_;        // at the last take_times
};

}  // namespace longstride
