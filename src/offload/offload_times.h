// Bytes moved between device, host and disk, the time it took, and how much of it was hidden.
#pragma once

#include <algorithm>
#include <cstdint>

#include "device/mover.h"

namespace longstride {

struct MovedBytes {
  std::int64_t out = 0, in = 0;             // from and to the device
  std::int64_t to_disk = 0, from_disk = 0;  // of those, through the disk

  MovedBytes operator+(const MovedBytes& more) const {
    return {out + more.out, in + more.in, to_disk + more.to_disk, from_disk + more.from_disk};
  }
  MovedBytes& operator+=(const MovedBytes& more) { return *this = *this + more; }
  MovedBytes operator-(const MovedBytes& earlier) const {
    return {out - earlier.out, in - earlier.in, to_disk - earlier.to_disk,
            from_disk - earlier.from_disk};
  }
};

// Since construction.
struct DiskTimes {
  double busy_s = 0;    // time that the disk was busy
  double waited_s = 0;  // time that the caller waited for it

  DiskTimes operator+(const DiskTimes& more) const {
    return {busy_s + more.busy_s, waited_s + more.waited_s};
  }
};

// The time that moving records took.
struct OffloadTimes {
  MoveTimes copies;     // between host and device
  double disk_s = 0;    // time that the disk was busy
  double waited_s = 0;  // time that the host waited for it; the device soon runs dry then

  OffloadTimes& operator+=(const OffloadTimes& more) {
    copies += more.copies;
    disk_s += more.disk_s;
    waited_s += more.waited_s;
    return *this;
  }
  double blocked_s() const { return copies.blocked_s + waited_s; }
  // The share of the busiest lane's or the disk's time that nobody waited for; 1 if nothing moved.
  double hidden_share() const {
    const double busy = std::max({copies.from_host_s, copies.to_host_s, disk_s});
    return busy > blocked_s() ? 1 - blocked_s() / busy : busy > 0 ? 0 : 1;
  }
};

}  // namespace longstride
