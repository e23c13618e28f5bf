// CodedPages: a store whose pages are in 8 bits (tensor/page_codes.h), as the tasks of a step see
// it. It has places for wide copies of the pages of one segment: keys and values in the type of
// compute, gradients in F32. Copies of the chunk's own pages are made when the segment is entered,
// those of earlier pages by attention, if it needs them (CodedView). Keys and values that a task
// writes are narrowed into the store's pages before anything reads them, so that every pass sees
// the same ones. Gradients are added to earlier pages by attention, once per chunk and page.
//
// Memory for the copies is that of the largest segment, whatever the context. If only one kind of
// page is coded, the other is passed through.
//
// Not thread-safe: the thread that runs the step owns it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "device/device.h"
#include "pages/kv_store.h"
#include "pages/page_store.h"

namespace longstride {

class CodedPages final : public PageStore {
 public:
  // `store` outlives it. For sequences of up to `logical_pages` pages.
  CodedPages(Device& device, KvStore& store, const WideCapacity& capacity,
             std::int64_t logical_pages);

  // Begins a sequence of that many tokens in chunks of `chunk_tokens`, after the store's begin().
  void begin(std::int64_t tokens, std::int64_t chunk_tokens);

  void enter(const Task& task) override;
  bool comes_in_segments(const Task&) const override { return true; }
  void enter_segment(const Task& task, std::size_t segment) override;
  void select(const Task& task, const PageSet& pages) override { store_.select(task, pages); }
  void keep_appended(const Task& task) override;
  void keep_gradients(const Task& task) override;
  void leave(const Task& task) override { store_.leave(task); }

  PagesView kv(std::int64_t layer) const override;
  PagesView gradients(std::int64_t layer) const override;
  CodedView codes(const Task& task) const override;

 private:
  bool codes_kv() const { return capacity_.kv_pages > 0; }
  bool codes_gradients() const { return capacity_.gradient_pages > 0; }
  // Gives these pages wide copies, in consecutive places, and takes those of the others.
  void place(const PageSet& pages);
  void widen_own(const Task& task);
  // Own pages of the task's chunk are the last of those placed.
  std::span<const std::int32_t> own(const Task& task) const;
  std::span<const std::int32_t> earlier(const Task& task) const;

  Device& device_;
  KvStore& store_;
  KvShape shape_;
  WideCapacity capacity_;
  std::unique_ptr<Memory> kv_memory_, gradient_memory_;  // null if not coded
  std::vector<std::int32_t> places_;                     // of logical pages; -1: none
  std::vector<std::int32_t> placed_;                     // those that have one, ascending
  std::int64_t tokens_ = 0, chunk_pages_ = 1;
};

}  // namespace longstride
