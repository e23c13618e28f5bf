// Copies between host and device that run beside computing. Three lanes: the stream that computes,
// and one for copies each way. What a lane is given runs in order; between lanes only fences
// and waits give order. This is movement alone: what goes where is decided elsewhere (src/pages,
// and src/train for the optimizer's state).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "device/wait_site.h"

namespace longstride {

enum class Lane : std::uint8_t { kCompute, kFromHost, kToHost };
inline constexpr int kLanes = 3;

// A point in a lane: everything that the lane was given before. 0: nothing.
struct Fence {
  Lane lane = Lane::kCompute;
  std::uint64_t number = 0;
  bool operator==(const Fence&) const = default;
};

struct MoveTimes {
  double from_host_s = 0, to_host_s = 0;  // the copy lanes were busy
  double blocked_s = 0;                   // computing waited for copies

  MoveTimes& operator+=(const MoveTimes& more) {
    from_host_s += more.from_host_s;
    to_host_s += more.to_host_s;
    blocked_s += more.blocked_s;
    return *this;
  }
  // Of the busier lane's time, what computing did not wait for; 1 where nothing was copied.
  double hidden_share() const {
    const double busy = from_host_s > to_host_s ? from_host_s : to_host_s;
    return busy > blocked_s ? 1 - blocked_s / busy : busy > 0 ? 0 : 1;
  }
};

// For one thread, but wait_on_host from any.
class Mover {
 public:
  virtual ~Mover() = default;

  virtual Fence fence(Lane lane) = 0;
  // What `lane` is given from now on begins after `fence`.
  virtual void wait(Lane lane, Fence fence, const WaitSite& site) = 0;
  // Returns when `fence` has passed.
  virtual void wait_on_host(Fence fence, const WaitSite& site) = 0;

  struct Copy {
    std::byte* to = nullptr;
    const std::byte* from = nullptr;
    std::int64_t bytes = 0;
  };
  // In kFromHost or kToHost; host memory is what Device::allocate_host gave. In any order among
  // themselves.
  virtual void copy(Lane lane, std::span<const Copy> copies) = 0;
  // Computing is about to touch memory that copies touch as well, or does until its next fence.
  // Changes nothing; for those who watch.
  virtual void computing_on(const std::byte* /*memory*/, std::int64_t /*bytes*/, bool /*writes*/) {}

  // Returns when all lanes have done everything.
  virtual void finish() = 0;
  // Since the last call, without what is still under way.
  virtual MoveTimes take_times() = 0;
};

// For destructors: where a lane has failed, there is nothing left to wait for, and the error that
// said so is on its way already.
inline void finish_whatever_comes(Mover& mover) noexcept {
  try {
    mover.finish();
  } catch (...) {  // NOLINT(bugprone-empty-catch)
  }
}

}  // namespace longstride
