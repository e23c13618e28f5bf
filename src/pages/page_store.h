// PageStore: what the tasks of a step see of the paged keys and values. A step runs on KvStore; a
// recording pass on ShapesPages, which knows shapes and has no pages.
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

  // Before a layer's task: the pages it appends exist on the device, their content undefined. Where
  // everything stays on the device, so are all that it visits, and in a backward task every visited
  // page has a gradient page, zeroed at its first access.
  virtual void enter(const Task& task) = 0;
  // Where pages come and go: the same for the visited pages of one segment, one segment after the
  // other. The last one stays until the task's end.
  virtual bool comes_in_segments() const = 0;
  virtual void enter_segment(const Task& task, std::size_t segment) = 0;
  // After a task: what it frees ends, K/V pages and gradient pages.
  virtual void leave(const Task& task) = 0;

  virtual PagesView kv(std::int64_t layer) const = 0;
  virtual PagesView gradients(std::int64_t layer) const = 0;
};

class ShapesPages final : public PageStore {
 public:
  explicit ShapesPages(std::int64_t page_tokens) { shapes_.page_tokens = page_tokens; }

  void enter(const Task&) override {}
  bool comes_in_segments() const override { return false; }
  void enter_segment(const Task&, std::size_t) override {}
  void leave(const Task&) override {}
  PagesView kv(std::int64_t) const override { return shapes_; }
  PagesView gradients(std::int64_t) const override { return shapes_; }

 private:
  PagesView shapes_;
};

}  // namespace longstride
