// CodedPages: a store of which some layers' pages are in 8 bits (tensor/page_codes.h), as the tasks
// of a step see it. It has places for wide copies of the pages of one segment: keys and values in
// the type of compute, gradients in F32. Copies of the chunk's own pages are made when the segment
// is entered, those of earlier pages by attention, if it needs them (CodedView). Keys and values
// that a task writes are narrowed into the store's pages before anything reads them, so that every
// pass sees the same ones. Gradients are added to earlier pages by attention, once per chunk and
// page; those of hot pages (pages/hot_pages.h) have a place of their own for the whole sequence,
// and stay in F32.
//
// Memory for the copies is that of the largest segment, whatever the context. Layers and kinds of
// pages that are not coded are passed through.
//
// Not thread-safe: the thread that runs the step owns it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "device/device.h"
#include "pages/hot_pages.h"
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
  bool comes_in_segments(const Task& task) const override {
    return is_coded(task.layer) || store_.comes_in_segments(task);
  }
  void enter_segment(const Task& task, std::size_t segment) override;
  void select(const Task& task, const PageSet& pages) override;
  void keep_appended(const Task& task) override;
  void keep_gradients(const Task& task) override;
  void leave(const Task& task) override { store_.leave(task); }

  PagesView kv(std::int64_t layer) const override;
  PagesView gradients(std::int64_t layer) const override;
  CodedView codes(const Task& task) const override;

 private:
  // Pages in consecutive slots of the copies.
  class Places {
   public:
    explicit Places(std::int64_t logical_pages)
        : slots_(static_cast<std::size_t>(logical_pages), -1) {}
    void clear();
    void add(std::int64_t page, std::int64_t slot);  // ascending pages
    const std::int32_t* slots() const { return slots_.data(); }
    // Those before the page, and from it on.
    std::span<const std::int32_t> before(std::int64_t page) const;
    std::span<const std::int32_t> from(std::int64_t page) const;
    std::int64_t size() const { return std::ssize(pages_); }

   private:
    std::vector<std::int32_t> slots_;  // of logical pages; -1: none
    std::vector<std::int32_t> pages_;  // those that have one
  };

  bool codes_kv(std::int64_t layer) const { return is_page_code(shape_.types(layer).kv); }
  bool codes_gradients(std::int64_t layer) const {
    return is_page_code(shape_.types(layer).gradients);
  }
  bool is_coded(std::int64_t layer) const { return codes_kv(layer) || codes_gradients(layer); }
  std::int64_t first_own(const Task& task) const { return task.chunk * chunk_pages_; }
  void place_kv(const PageSet& pages);
  void place_gradients(const Task& task, const PageSet& pages);
  // Gives the hot pages of the task's layer their slots, and returns them. They are zeroed at the
  // layer's first task.
  std::span<const std::int32_t> place_hot(const Task& task);
  void widen_own(const Task& task);

  Device& device_;
  KvStore& store_;
  KvShape shape_;
  WideCapacity capacity_;
  std::unique_ptr<Memory> kv_memory_;        // null if no layer's are coded
  std::unique_ptr<Memory> gradient_memory_;  // likewise; hot pages first
  Places kv_, sums_;                         // `sums_`: of gradients, without hot pages
  std::vector<std::int32_t> sum_slots_;      // of gradients, with hot pages
  HotPages hot_;
  std::vector<std::int64_t> first_hot_;  // by layer: the slot of its first hot page; -1: none yet
  std::int64_t next_hot_ = 0, hot_layer_ = -1;  // `hot_layer_`: whose pages have slots; -1: none
  std::int64_t tokens_ = 0, chunk_pages_ = 1;
};

}  // namespace longstride
