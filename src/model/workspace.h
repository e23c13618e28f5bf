// Workspace: provides the tensors of layer code. A recording workspace, run on shapes alone,
// records sizes and lifetimes; a placed one replays the same requests at addresses chosen before
// the step. Neither allocates.
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

// A tensor of the workspace, released on destruction. Movable.
class Lease {
 public:
  Lease() = default;
  // A tensor outside the workspace: releasing it does nothing.
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
  // All leases must have been released.
  WorkspaceTrace finish_recording();

  // Replays `trace` with request i at base + offsets[i]. Requests must come in the recorded order
  // and may be smaller than recorded (a short last chunk), never larger. The arguments must outlive
  // the replay.
  void start_replay(std::byte* base, const WorkspaceTrace& trace,
                    std::span<const std::int64_t> offsets);
  void finish_replay();
  // Abandons the current replay after an interrupted step, once its leases are released.
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
