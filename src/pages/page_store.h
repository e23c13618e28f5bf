// PageStore: the interface to the paged keys and values for the tasks of a step. A step uses
// KvStore; a recording pass uses ShapesPages, which has shapes but no pages.
//
// Not thread-safe: the thread that runs the step owns it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "schedule/step_schedule.h"
#include "tensor/pages_view.h"

namespace longstride {

class PageStore {
 public:
  virtual ~PageStore() = default;

  // Call before a layer's task: creates the pages it appends, on the device, their content
  // undefined. Unless the task's pages come in segments, also makes sure that all pages it visits
  // are there, and in a backward task that each has a gradient page, zeroed at its first access.
  virtual void enter(const Task& task) = 0;
  // If they do, enter_segment does the same for the visited pages of one segment, one segment after
  // the other. The last one stays until the task's end.
  virtual bool comes_in_segments(const Task& task) const = 0;
  virtual void enter_segment(const Task& task, std::size_t segment) = 0;
  // Sets the pages that this sparse task and all later ones of its chunk and layer visit, the
  // chunk's own included. Call before the task's first segment.
  virtual void select(const Task& task, const PageSet& pages) = 0;
  // Call when a task's own keys and values have been written, before they are read.
  virtual void keep_appended(const Task& /*task*/) {}
  // Call after a backward task's attention over a segment, or over all of them if they do not come
  // one by one. After the last one, gradients() of the chunk's own pages are complete.
  virtual void keep_gradients(const Task& /*task*/) {}
  // Call after a task: releases the K/V pages and gradient pages that it frees.
  virtual void leave(const Task& task) = 0;

  virtual PagesView kv(std::int64_t layer) const = 0;
  virtual PagesView gradients(std::int64_t layer) const = 0;
  // Pages in 8 bits among those that attention is about to read, before the task's chunk; their
  // places in kv() and gradients() are free for wide copies.
  virtual CodedView codes(const Task& /*task*/) const { return {}; }
};

class ShapesPages final : public PageStore {
 public:
  explicit ShapesPages(std::int64_t page_tokens) { shapes_.page_tokens = page_tokens; }

  void enter(const Task&) override {}
  bool comes_in_segments(const Task&) const override { return false; }
  void enter_segment(const Task&, std::size_t) override {}
  void select(const Task&, const PageSet&) override {}
  void leave(const Task&) override {}
  PagesView kv(std::int64_t) const override { return shapes_; }
  PagesView gradients(std::int64_t) const override { return shapes_; }

 private:
  PagesView shapes_;
};

}  // namespace longstride
