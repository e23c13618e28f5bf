// The paged keys and values of all layers, and their gradients. Pages that do not fit on the device
// are offloaded; those that a task accesses are on the device by then. Not thread-safe: the thread
// that runs the step owns it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "offload/offload_times.h"
#include "pages/page_store.h"
#include "pages/tiered_pages.h"
#include "schedule/step_schedule.h"
#include "tensor/page_codes.h"
#include "tensor/pages_view.h"

namespace longstride {

struct KvShape {
  std::int64_t layers = 0, kv_heads = 0, head_size = 0, page_tokens = 0;
  DType dtype = DType::kF32;           // of keys and values
  DType gradient_dtype = DType::kF32;  // of their gradients
  DType wide = dtype;                  // of keys and values as attention reads them
  std::int64_t page_bytes() const { return bytes_in(dtype, true); }
  std::int64_t gradient_page_bytes() const { return bytes_in(gradient_dtype); }
  // Of the copies that attention works on, where pages are coded.
  std::int64_t wide_page_bytes() const { return bytes_in(wide); }
  std::int64_t gradient_sum_bytes() const { return bytes_in(DType::kF32); }
  std::int64_t bytes_in(DType type, bool centred = false) const {
    return page_bytes_of(type, page_tokens, kv_heads, head_size, centred);
  }
};

// Wide copies of coded pages on the device (attention/coded_pages.h); none of a kind that is not
// coded.
struct WideCapacity {
  std::int64_t kv_pages = 0, gradient_pages = 0;
  bool any() const { return kv_pages + gradient_pages > 0; }
  std::int64_t bytes(const KvShape& shape) const {
    return kv_pages * shape.wide_page_bytes() + gradient_pages * shape.gradient_sum_bytes();
  }
  bool operator==(const WideCapacity&) const = default;
};

// For sequences of up to `logical_pages` pages.
struct KvCapacity {
  std::int64_t logical_pages = 0;
  std::int64_t pages_per_group = 1;               // pages that move together; any number
  std::int64_t kv_pages = 0, gradient_pages = 0;  // on the device
  OffloadCapacity kv_offload = {}, gradient_offload = {};
  bool operator==(const KvCapacity&) const = default;
};

// The late accesses of a step: those of sparse tasks, by chunk and layer. Selecting the pages of
// one resolves all of them.
class LateAccesses {
 public:
  struct Access {
    std::int64_t number = 0;
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

// The accesses of a step: one per task for all its visited pages, or one per segment. Those of
// sparse tasks are late.
struct KvAccesses {
  AccessList kv, gradients;
  LateAccesses late;
};
KvAccesses list_accesses(const StepSchedule& schedule, std::int64_t layers,
                         std::int64_t page_tokens, bool in_segments);

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
  // The pages of the visit that was entered last.
  PageSet entered() const { return kv_.pages_of(next_kv_ - 1); }

  PagesView kv(std::int64_t layer) const override { return view(kv_, layer, shape_.dtype, true); }
  PagesView gradients(std::int64_t layer) const override {
    return view(gradients_, layer, shape_.gradient_dtype, false);
  }
  const PagePool& kv_pool() const { return kv_.pool(); }
  const PagePool& gradient_pool() const { return gradients_.pool(); }
  // Bytes moved since construction.
  MovedBytes moved() const;
  // Times since the last call; complete after finish().
  OffloadTimes take_times();

 private:
  PagesView view(const TieredPages& pages, std::int64_t layer, DType dtype, bool centred) const;
  void enter_visited(const Task& task);
  void leave_visited(const Task& task);

  KvShape shape_;
  std::unique_ptr<Mover> mover_;  // null if nothing is offloaded
  TieredPages kv_, gradients_;
  LateAccesses late_;
  std::int64_t next_kv_ = 0, next_gradient_ = 0;  // the next accesses to begin
  std::int64_t appended_ = -1;                    // the access to a task's own pages
  DiskTimes disk_taken_;                          // at the last take_times
};

}  // namespace longstride
