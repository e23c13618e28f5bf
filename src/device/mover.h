// Copies between host and device that overlap computing. There are three lanes: the compute stream,
// and one for copies in each direction. Work within a lane runs in order; between lanes only fences
// and waits order it. The mover has no policy: src/pages decides what goes where, and src/train
// does for the optimizer's state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "device/wait_site.h"

namespace longstride {

enum class Lane : std::uint8_t { kCompute, kFromHost, kToHost };
inline constexpr int kLanes = 3;

// A point in a lane, passed once all work queued before it is done. 0 has always passed.
struct Fence {
  Lane lane = Lane::kCompute;
  std::uint64_t number = 0;
  bool operator==(const Fence&) const = default;
};

struct MoveTimes {
  double from_host_s = 0, to_host_s = 0;  // time that the copy lanes were busy
  double blocked_s = 0;                   // time that computing waited for copies

  MoveTimes& operator+=(const MoveTimes& more) {
    from_host_s += more.from_host_s;
    to_host_s += more.to_host_s;
    blocked_s += more.blocked_s;
    return *this;
  }
  // The share of the busier lane's time that computing did not wait for; 1 if nothing was copied.
  double hidden_share() const {
    const double busy = from_host_s > to_host_s ? from_host_s : to_host_s;
    return busy > blocked_s ? 1 - blocked_s / busy : busy > 0 ? 0 : 1;
  }
};

// Not thread-safe: one thread owns it; only wait_on_host may be called from any thread.
class Mover {
 public:
  virtual ~Mover() = default;

  virtual Fence fence(Lane lane) = 0;
  // Work queued in `lane` from now on begins after `fence` has passed.
  virtual void wait(Lane lane, Fence fence, const WaitSite& site) = 0;
  // Returns when `fence` has passed.
  virtual void wait_on_host(Fence fence, const WaitSite& site) = 0;

  struct Copy {
    std::byte* to = nullptr;
    const std::byte* from = nullptr;
    std::int64_t bytes = 0;
  };
  // Queues copies in kFromHost or kToHost, in any order among themselves. The host memory must come
  // from Device::allocate_host.
  virtual void copy(Lane lane, std::span<const Copy> copies) = 0;
  // Announces that computing accesses this memory, which copies access too, from now until its next
  // fence. Has no effect; tests check the order of accesses by it.
  virtual void computing_on(const std::byte* /*memory*/, std::int64_t /*bytes*/, bool /*writes*/) {}

  // Returns when all lanes are idle.
  virtual void finish() = 0;
  // Times since the last call, without copies still in flight.
  virtual MoveTimes take_times() = 0;
};

// For destructors: after a lane has failed there is nothing to wait for, and its error is already
// being reported.
inline void finish_whatever_comes(Mover& mover) noexcept {
  try {
    mover.finish();
  } catch (...) {  // NOLINT(bugprone-empty-catch)
  }
}

}  // namespace longstride
