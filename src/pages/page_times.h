// What movement between device, host and disk cost, and how much of it was hidden.
#pragma once

#include <algorithm>

#include "device/mover.h"

namespace longstride {

// How long pages, or slices of the optimizer's state, were on their way.
struct PageTimes {
  MoveTimes copies;     // between host and device
  double disk_s = 0;    // the disk was busy
  double waited_s = 0;  // the host stood still for it, and with it, after a while, the device

  PageTimes& operator+=(const PageTimes& more) {
    copies += more.copies;
    disk_s += more.disk_s;
    waited_s += more.waited_s;
    return *this;
  }
  double blocked_s() const { return copies.blocked_s + waited_s; }
  // Of the time of the busiest lane or of the disk, what nobody waited for; 1 where nothing moved.
  double hidden_share() const {
    const double busy = std::max({copies.from_host_s, copies.to_host_s, disk_s});
    return busy > blocked_s() ? 1 - blocked_s() / busy : busy > 0 ? 0 : 1;
  }
};

}  // namespace longstride
