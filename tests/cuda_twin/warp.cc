#include "tests/cuda_twin/warp.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>

#include "tests/cuda_twin/memory.h"

namespace longstride::twin {

Warp::Warp(Block& block, int number, std::uint32_t lanes)
    : block_(block), file_(block.kernel->register_bytes), launched_(lanes), number_(number) {
  for (const Kernel::Constant& c : block.kernel->constants)
    for (int lane = 0; lane < kLanes; ++lane) set(c.to, lane, c.value);
}

void Warp::restart(std::uint64_t seed) {
  groups_.assign(1, {0, launched_});
  random_ = seed * 0x9E3779B97F4A7C15ull + static_cast<std::uint64_t>(number_);
  accesses_left_ = 1;
  alive_ = launched_;
  copies_.clear();
  shared_ = block_.shared.data();
  shared_bytes_ = block_.shared.size();
  const Dim3 threads = block_.threads, at = block_.at;
  const auto& specials = block_.kernel->specials;
  const auto everywhere = [&](int special, const Dim3& d) {
    const std::uint32_t values[] = {d.x, d.y, d.z};
    for (std::size_t i = 0; i < 3; ++i)
      if (const Operand to = specials[static_cast<std::size_t>(special) + i]; to.at != 0)
        std::fill_n(lanes<std::uint32_t>(to), kLanes, values[i]);
  };
  everywhere(kBlock, at);
  everywhere(kThreads, threads);
  everywhere(kBlocks, block_.blocks);
  for (int lane = 0; lane < kLanes; ++lane) {
    const std::uint32_t n = static_cast<std::uint32_t>(number_ * kLanes + lane);
    const std::uint32_t values[] = {n % threads.x, n / threads.x % threads.y,
                                    n / threads.x / threads.y};
    for (std::size_t i = 0; i < 3; ++i)
      if (specials[kThread + i].at != 0)
        lanes<std::uint32_t>(specials[kThread + i])[lane] = values[i];
    if (specials[kLane].at != 0)
      lanes<std::uint32_t>(specials[kLane])[lane] = static_cast<std::uint32_t>(lane);
    if (specials[kWarp].at != 0)
      lanes<std::uint32_t>(specials[kWarp])[lane] = static_cast<std::uint32_t>(number_);
  }
}

void Warp::fail(const std::string& what) const {
  const Kernel& k = *block_.kernel;
  const std::uint32_t pc = groups_.empty() ? 0 : groups_.front().pc;
  throw Fault(fmt::format("{}\n  at: {}\n  in {}, block ({}, {}, {}), warp {}", what,
                          pc < k.lines.size() ? k.lines[pc] : "?", k.name, block_.at.x, block_.at.y,
                          block_.at.z, number_));
}

void Warp::refuse(std::uint64_t address, std::uint32_t bytes, std::size_t all,
                  const char* what) const {
  fail(fmt::format("{} bytes at {} of {} bytes of {}", bytes, address, all, what));
}

void Warp::find_range(std::uint64_t address, std::uint32_t bytes) {
  if ((address & (bytes - 1)) != 0)
    fail(fmt::format("{} bytes at {:#x}, which is not aligned to them", bytes, address));
  const Range range = range_of(address);
  if (range.place != Place::kDevice || address + bytes > range.end)
    fail(fmt::format("{} bytes at {:#x} are {}", bytes, address,
                     range.place == Place::kPinned ? "in host memory"
                     : range.place == Place::kDevice
                         ? fmt::format("past the end of {} bytes", range.end - range.begin)
                         : "in no allocation"));
  low_ = range.begin;
  high_ = range.end;
}

void Warp::copy_later(int lane, std::uint64_t to, const std::byte* from, std::uint32_t bytes,
                      std::uint32_t taken) {
  shared(to, bytes);  // in bounds
  Copy& c = copies_.emplace_back();
  c = {.lane = lane, .group = committed_[lane], .bytes = bytes, .to = to, .data = {}};
  std::memcpy(c.data, from, taken);
}

void Warp::commit_copies(std::uint32_t lanes) {
  for (; lanes != 0; lanes &= lanes - 1) ++committed_[std::countr_zero(lanes)];
}

void Warp::wait_for_copies(std::uint32_t lanes, std::uint32_t groups_left, bool all) {
  std::erase_if(copies_, [&](const Copy& c) {
    if ((lanes >> c.lane & 1) == 0) return false;
    if (!all && c.group + groups_left >= committed_[c.lane]) return false;
    std::memcpy(shared(c.to, c.bytes), c.data, c.bytes);
    return true;
  });
}

// Joins groups that have met and puts the one to run first. False if all of them wait.
bool Warp::next_group() {
  for (std::size_t i = 0; i < groups_.size(); ++i)
    for (std::size_t j = i + 1; j < groups_.size();)
      if (groups_[i].pc == groups_[j].pc) {
        groups_[i].lanes |= groups_[j].lanes;
        groups_[i].waits = false;
        groups_[i].behind = 0;
        groups_.erase(groups_.begin() + static_cast<std::ptrdiff_t>(j));
      } else {
        ++j;
      }
  const auto lowest = [this](const auto& may_run) {
    std::size_t found = groups_.size();
    for (std::size_t i = 0; i < groups_.size(); ++i)
      if (!groups_[i].waits && may_run(groups_[i]) &&
          (found == groups_.size() || groups_[i].pc < groups_[found].pc))
        found = i;
    return found;
  };
  std::size_t next = lowest([](Group& g) { return g.behind == 0 || --g.behind == 0; });
  if (next == groups_.size()) next = lowest([](const Group&) { return true; });
  if (next == groups_.size()) return false;
  groups_[next].behind = 0;
  std::swap(groups_[0], groups_[next]);
  return true;
}

// Some lanes of the first group, at random: what they are about to read may change, and what they
// are about to write is not there yet. Kernels must synchronize lanes that share memory.
void Warp::let_some_fall_behind() {
  random_ = random_ * 6364136223846793005ull + 1442695040888963407ull;
  accesses_left_ = 1 + (random_ >> 40 & 255);
  const std::uint32_t lanes = groups_.front().lanes;
  const auto drawn = static_cast<std::uint32_t>(random_ >> 32);
  // Half of the lanes, the first ones, or one.
  const std::uint32_t masks[] = {drawn, (1u << (drawn >> 27)) - 1, 1u << (drawn >> 27)};
  const std::uint32_t behind = lanes & masks[(random_ >> 20) % 3];
  if (behind == 0 || behind == lanes) return;
  groups_.front().lanes &= ~behind;
  groups_.push_back({groups_.front().pc, behind, false, 20 + (drawn & 255)});
}

bool Warp::run() {
  const std::vector<Instruction>& code = block_.kernel->code;
  while (alive_ != 0) {
    const Instruction& i = code[groups_.front().pc];
    if (i.reads_or_writes && --accesses_left_ == 0) let_some_fall_behind();
    Group& g = groups_.front();
    std::uint32_t active = g.lanes;
    if (i.guarded) active &= i.unless ? ~predicate(i.guard) : predicate(i.guard);
    switch (i.control) {
      case Control::kNone:
        if (active != 0) i.run(*this, i, active);
        ++g.pc;
        break;
      case Control::kConverged: {
        if (active != 0) {
          const auto wanted =
              static_cast<std::uint32_t>(value(i.together, std::countr_zero(active)));
          if ((wanted & launched_ & ~active) != 0) {
            g.waits = true;
            break;
          }
          if (i.run != nullptr) i.run(*this, i, active);
        }
        ++g.pc;
        break;
      }
      case Control::kBranch:
        if (active == g.lanes) {
          g.pc = i.target;
        } else {
          ++g.pc;
          if (active != 0) {
            g.lanes &= ~active;
            groups_.push_back({i.target, active});
          }
        }
        break;
      case Control::kReturn:
        alive_ &= ~active;
        g.lanes &= ~active;
        for (Group& other : groups_) other.waits = false;  // a barrier may want no more lanes
        if (g.lanes == 0)
          groups_.erase(groups_.begin());
        else
          ++g.pc;
        break;
      case Control::kBarrier:
        if (active == alive_) return true;
        g.waits = true;
        break;
    }
    if ((groups_.size() > 1 || (groups_.size() == 1 && groups_.front().waits)) && !next_group())
      fail("lanes wait for others of the warp, which do not come");
  }
  if (!copies_.empty()) fail("copies to shared memory are under way at the end");
  return false;
}

namespace {

enum BarrierMode : std::uint8_t { kSync, kArrive, kCount };

struct Barrier {
  std::uint32_t arrived = 0, counted = 0;
  std::vector<std::size_t> waiting;
};

}  // namespace

void run_block(Block& block, std::vector<Warp>& warps, std::uint64_t order) {
  for (Warp& w : warps) w.restart(order);
  std::vector<std::size_t> ready(warps.size());
  for (std::size_t i = 0; i < ready.size(); ++i) ready[i] = i;
  std::map<std::uint32_t, Barrier> barriers;
  std::uint32_t running = static_cast<std::uint32_t>(warps.size());

  const auto threads_of = [](const Warp& w) {
    return static_cast<std::uint32_t>(std::popcount(w.launched()));
  };
  const auto release = [&](Barrier& b, const Operand* count_to) {
    for (const std::size_t w : b.waiting) {
      if (count_to != nullptr)
        for (int lane = 0; lane < kLanes; ++lane) warps[w].set(*count_to, lane, b.counted);
      warps[w].pass_barrier();
      ready.push_back(w);
    }
    b = {};
  };
  // Barriers of the whole block wait for the warps that have not ended.
  const auto release_whole = [&] {
    for (auto& [id, b] : barriers)
      if (!b.waiting.empty() && b.waiting.size() == running) {
        const Instruction& i = warps[b.waiting.front()].barrier();
        if (i.mode == kSync && i.sources == 2) continue;
        release(b, i.mode == kCount ? &i.to[0] : nullptr);
      }
  };

  while (!ready.empty()) {
    order = order * 6364136223846793005ull + 1442695040888963407ull;
    const std::size_t pick = (order >> 33) % ready.size(), w = ready[pick];
    ready.erase(ready.begin() + static_cast<std::ptrdiff_t>(pick));
    Warp& warp = warps[w];
    if (!warp.run()) {
      --running;
      release_whole();
      continue;
    }
    const Instruction& i = warp.barrier();
    Barrier& b = barriers[static_cast<std::uint32_t>(warp.value(i.from[0], 0))];
    b.arrived += threads_of(warp);
    if (i.mode == kArrive) {
      warp.pass_barrier();
      ready.push_back(w);
    } else {
      b.waiting.push_back(w);
    }
    if (i.mode == kCount)
      b.counted +=
          static_cast<std::uint32_t>(std::popcount(warp.predicate(i.from[1]) & warp.alive()));
    if (i.mode != kCount && i.sources == 2) {
      if (b.arrived >= warp.value(i.from[1], 0)) release(b, nullptr);
    } else {
      release_whole();
    }
  }
  if (running > 0)
    throw Fault(fmt::format("{}: {} of {} warps wait at a barrier that the others do not reach",
                            block.kernel->name, running, warps.size()));
}

}  // namespace longstride::twin
