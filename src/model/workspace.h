// Workspace: where layer code gets its tensors. A recording workspace, run on shapes alone, writes
// down sizes and lifetimes; a placed one replays the same requests at addresses chosen before the
// step. Neither allocates.
//
// Not thread-safe: the thread that runs the step owns it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tensor/view.h"

namespace longstride {

// One tensor: alive from event `begin` to event `end`, both counted in takes and releases since the
// recording began.
struct WorkspaceRequest {
  std::string name;
  std::int64_t bytes = 0;
  std::int64_t begin = 0, end = 0;
  bool operator==(const WorkspaceRequest&) const = default;
};
using WorkspaceTrace = std::vector<WorkspaceRequest>;

class Workspace;

// A tensor of the workspace, given back on destruction. Movable.
class Lease {
 public:
  Lease() = default;
  // A tensor that lies elsewhere: giving it back does nothing.
  explicit Lease(View elsewhere) : view_(elsewhere) {}
  Lease(Lease&& other) noexcept { *this = std::move(other); }
  Lease& operator=(Lease&& other) noexcept;
  ~Lease() { release(); }
  void release();

  const View& view() const { return view_; }
  operator View() const { return view_; }       // NOLINT(google-explicit-constructor)
  operator ConstView() const { return view_; }  // NOLINT(google-explicit-constructor)
  bool present() const { return view_.present(); }

 private:
  friend class Workspace;
  Lease(Workspace* owner, std::size_t index, View view)
      : owner_(owner), index_(index), view_(view) {}
  Workspace* owner_ = nullptr;
  std::size_t index_ = 0;
  View view_;
};

class Workspace {
 public:
  // `name` is for checks and plans.
  Lease take(const char* name, DType dtype, Shape shape);

  void start_recording();
  // All leases must have been given back.
  WorkspaceTrace finish_recording();

  // Replays `trace` with request i at base + offsets[i]. A request may be smaller than the recorded
  // one (a short last chunk), never larger, and must come in the recorded order. The arguments must
  // outlive the replay.
  void start_replay(std::byte* base, const WorkspaceTrace& trace,
                    std::span<const std::int64_t> offsets);
  void finish_replay();
  // Forgets the current replay: for a step that was interrupted, after its leases are gone.
  void abandon();

 private:
  friend class Lease;
  void give(std::size_t index);

  bool recording_ = false;
  std::int64_t clock_ = 0, live_ = 0;
  WorkspaceTrace recorded_;
  std::byte* base_ = nullptr;
  const WorkspaceTrace* trace_ = nullptr;
  std::span<const std::int64_t> offsets_;
  std::size_t next_ = 0;
};

}  // namespace longstride
