// A mover for tests. Copies happen late, in pieces, and in any random order that fences and waits
// allow. Vector clocks check that fences and waits alone order every access after those it
// conflicts with, whatever the timing. One kind of wait can be omitted, to test that this is
// detected. Its lanes are those of the CPU device: computing has run when its call returns.
#pragma once

#include <array>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <vector>

#include "base/error.h"
#include "base/random.h"
#include "device/mover.h"

namespace longstride {

// Shared by all movers of a test.
struct MoverWatch {
  std::uint64_t seed = 0;
  std::int64_t granule = 64;           // accesses are compared in pieces of this many bytes
  const WaitSite* left_out = nullptr;  // waits here are omitted
  std::map<const WaitSite*, std::int64_t> waits = {};
  std::int64_t races = 0, copies = 0;
  bool is_gone = false;  // the device has failed: finish() throws an Error
};

class WatchedMover final : public Mover {
 public:
  explicit WatchedMover(MoverWatch& watch) : watch_(watch), random_(watch.seed) {}
  ~WatchedMover() override { finish_whatever_comes(*this); }

  Fence fence(Lane lane) override {
    const std::scoped_lock lock(mutex_);
    LaneState& l = at(lane);
    l.fences.push_back(l.clock);
    l.fences.back()[index(lane)] = l.operations;
    dawdle();
    return {lane, l.fences.size()};
  }

  void wait(Lane lane, Fence fence, const WaitSite& site) override {
    const std::scoped_lock lock(mutex_);
    if (fence.number == 0 || skips(site)) return;
    const Clock& clock = at(fence.lane).fences[fence.number - 1];
    for (std::size_t i = 0; i < clock.size(); ++i)
      at(lane).clock[i] = std::max(at(lane).clock[i], clock[i]);
    if (lane == Lane::kCompute) run_until(clock);
    dawdle();
  }

  void wait_on_host(Fence fence, const WaitSite& site) override {
    const std::scoped_lock lock(mutex_);
    if (fence.number == 0 || skips(site)) return;
    const Clock& clock = at(fence.lane).fences[fence.number - 1];
    run_until(clock);
    // Work queued in any lane later comes after what the host has waited for.
    for (LaneState& l : lanes_)
      for (std::size_t i = 0; i < clock.size(); ++i) l.clock[i] = std::max(l.clock[i], clock[i]);
    for (std::size_t i = 0; i < clock.size(); ++i) host_[i] = std::max(host_[i], clock[i]);
  }

  void copy(Lane lane, std::span<const Copy> copies) override {
    const std::scoped_lock lock(mutex_);
    LaneState& l = at(lane);
    ++l.operations;
    ++watch_.copies;
    for (const Copy& c : copies) {
      access(lane, c.from, c.bytes, false);
      access(lane, c.to, c.bytes, true);
    }
    l.pending.push_back({l.operations, l.clock, {copies.begin(), copies.end()}});
    dawdle();
  }

  void computing_on(const std::byte* memory, std::int64_t bytes, bool writes) override {
    const std::scoped_lock lock(mutex_);
    ++at(Lane::kCompute).operations;
    access(Lane::kCompute, memory, bytes, writes);
  }

  // The host accesses memory that copies access too. It must have waited for them itself.
  void host_accesses(const std::byte* memory, std::int64_t bytes, bool writes) {
    const std::scoped_lock lock(mutex_);
    for (std::int64_t offset = 0; offset < bytes; offset += watch_.granule) {
      const Accesses& last = accesses_[memory + offset];
      for (std::size_t lane = 0; lane < kLanes; ++lane)
        if (last.writes[lane] > host_[lane] || (writes && last.reads[lane] > host_[lane]))
          ++watch_.races;
    }
  }

  void finish() override {
    const std::scoped_lock lock(mutex_);
    Clock all{};
    for (int i = 0; i < kLanes; ++i) all[static_cast<std::size_t>(i)] = lanes_[i].operations;
    run_until(all);
    host_ = all;
    // All lanes wait for everything here.
    for (LaneState& l : lanes_) l.clock = all;
    if (watch_.is_gone) throw Error("the device is gone", "");
  }
  MoveTimes take_times() override { return {}; }

 private:
  using Clock = std::array<std::uint64_t, kLanes>;
  struct Pending {
    std::uint64_t number;
    Clock after;
    std::vector<Copy> copies;
  };
  struct LaneState {
    std::uint64_t operations = 0;
    Clock clock{};  // the fences of other lanes that this one has waited for
    std::vector<Clock> fences;
    std::deque<Pending> pending;
  };
  struct Accesses {
    Clock reads{}, writes{};  // the last one of each lane
  };

  static std::size_t index(Lane lane) { return static_cast<std::size_t>(lane); }
  LaneState& at(Lane lane) { return lanes_[index(lane)]; }
  bool skips(const WaitSite& site) {
    ++watch_.waits[&site];
    return watch_.left_out == &site;
  }

  void access(Lane lane, const std::byte* memory, std::int64_t bytes, bool writes) {
    for (std::int64_t offset = 0; offset < bytes; offset += watch_.granule) {
      Accesses& last = accesses_[memory + offset];
      for (std::size_t other = 0; other < kLanes; ++other) {
        if (other == index(lane)) continue;
        const std::uint64_t known = at(lane).clock[other];
        if (last.writes[other] > known || (writes && last.reads[other] > known)) ++watch_.races;
      }
      (writes ? last.writes : last.reads)[index(lane)] = at(lane).operations;
    }
  }

  // Runs a lane's copies up to a number, and before each one those it depends on.
  void run_until(const Clock& clock) {
    for (const Lane lane : {Lane::kFromHost, Lane::kToHost}) {
      std::deque<Pending>& pending = at(lane).pending;
      while (!pending.empty() && pending.front().number <= clock[index(lane)]) {
        Pending next = std::move(pending.front());
        pending.pop_front();
        run_until(next.after);
        run(next);
      }
    }
  }
  void run(Pending& pending) {
    std::vector<Copy> pieces;
    for (const Copy& c : pending.copies)
      for (std::int64_t at = 0; at < c.bytes;) {
        const auto n = std::min<std::int64_t>(
            c.bytes - at, 1 + static_cast<std::int64_t>(
                                  random_.below(static_cast<std::uint64_t>(2 * watch_.granule))));
        pieces.push_back({c.to + at, c.from + at, n});
        at += n;
      }
    for (std::size_t i = pieces.size(); i > 1; --i)
      std::swap(pieces[i - 1], pieces[random_.below(i)]);
    for (const Copy& c : pieces) std::memcpy(c.to, c.from, static_cast<std::size_t>(c.bytes));
  }
  // Now and then a copy runs before anything waits for it.
  void dawdle() {
    if (random_.below(4) != 0) return;
    const Lane lane = random_.below(2) == 0 ? Lane::kFromHost : Lane::kToHost;
    if (at(lane).pending.empty()) return;
    Clock until{};
    until[index(lane)] = at(lane).pending.front().number;
    run_until(until);
  }

  MoverWatch& watch_;
  std::mutex mutex_;
  Random random_;
  std::array<LaneState, kLanes> lanes_;
  Clock host_{};  // what the host has waited for
  std::map<const std::byte*, Accesses> accesses_;
};

}  // namespace longstride
