// A CPU device whose copies are watched: every access of a lane that another lane could meet is
// noted, and two that no mark and wait put in order are a race. Arithmetic and copies themselves
// happen at once, as on the CPU.
#pragma once

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "device/device.h"

namespace longstride {

// What all movers of one device saw.
struct Watch {
  std::optional<WaitSite> left_out;  // these waits do nothing
  std::int64_t races = 0, copies = 0;
};

class WatchedMover final : public Mover {
 public:
  WatchedMover(std::unique_ptr<Mover> mover, Watch& watch)
      : mover_(std::move(mover)), watch_(watch) {}

  Mark mark(Lane lane) override {
    const Mark mark{lane, ++clocks_[at(lane)][at(lane)]};
    marks_[{at(lane), mark.number}] = clocks_[at(lane)];
    return mark;
  }
  void wait(Lane lane, Mark mark, WaitSite site) override {
    if (mark.number == 0 || watch_.left_out == site) return;
    const Clock& then = marks_.at({at(mark.lane), mark.number});
    for (int l = 0; l < kLanes; ++l) clocks_[at(lane)][l] = std::max(clocks_[at(lane)][l], then[l]);
  }
  void wait_on_host(Mark mark) override {
    for (const Lane lane : {Lane::kCompute, Lane::kFromHost, Lane::kToHost})
      wait(lane, mark, WaitSite::kUseAfterFetch);
  }
  void copy(Lane lane, std::span<const Copy> copies) override {
    for (const Copy& c : copies) {
      note(lane, c.from, c.bytes, false);
      note(lane, c.to, c.bytes, true);
    }
    watch_.copies += std::ssize(copies);
    mover_->copy(lane, copies);
  }
  void computing_on(const std::byte* memory, std::int64_t bytes, bool writes) override {
    note(Lane::kCompute, memory, bytes, writes);
  }
  void finish() override {
    mover_->finish();
    accesses_.clear();  // everything later comes after
  }
  MoveTimes take_times() override { return mover_->take_times(); }

 private:
  using Clock = std::array<std::uint64_t, kLanes>;
  struct Access {
    Lane lane;
    const std::byte *begin, *end;
    bool writes;
    std::uint64_t time;  // the lane's mark that covers it
  };
  static int at(Lane lane) { return static_cast<int>(lane); }

  void note(Lane lane, const std::byte* memory, std::int64_t bytes, bool writes) {
    const Access now{lane, memory, memory + bytes, writes, clocks_[at(lane)][at(lane)] + 1};
    for (const Access& before : accesses_)
      if (before.lane != lane && (before.writes || writes) && before.begin < now.end &&
          now.begin < before.end && clocks_[at(lane)][at(before.lane)] < before.time)
        ++watch_.races;
    accesses_.push_back(now);
  }

  std::unique_ptr<Mover> mover_;
  Watch& watch_;
  std::array<Clock, kLanes> clocks_{};  // of each lane: what it knows to be done in the others
  std::map<std::pair<int, std::uint64_t>, Clock> marks_;
  std::vector<Access> accesses_;
};

class WatchedDevice final : public Device {
 public:
  DeviceKind kind() const override { return cpu_->kind(); }
  std::string name() const override { return cpu_->name(); }
  Stream& stream() override { return cpu_->stream(); }
  std::unique_ptr<Memory> allocate(std::int64_t bytes, const std::string& what) override {
    return cpu_->allocate(bytes, what);
  }
  std::unique_ptr<Mover> make_mover() override {
    return std::make_unique<WatchedMover>(cpu_->make_mover(), watch);
  }
  void copy_to_host(void* host, const void* device, std::int64_t bytes) override {
    cpu_->copy_to_host(host, device, bytes);
  }
  void copy_to_host_later(void* host, const void* device, std::int64_t bytes) override {
    cpu_->copy_to_host_later(host, device, bytes);
  }
  void copy_from_host(void* device, const void* host, std::int64_t bytes) override {
    cpu_->copy_from_host(device, host, bytes);
  }
  void zero(void* device, std::int64_t bytes) override { cpu_->zero(device, bytes); }
  std::int64_t allocated_bytes() const override { return cpu_->allocated_bytes(); }
  std::int64_t available_bytes() const override { return cpu_->available_bytes(); }
  bool shares_host_memory() const override { return true; }

  Watch watch;

 private:
  std::unique_ptr<Device> cpu_ = make_cpu_device();
};

}  // namespace longstride
