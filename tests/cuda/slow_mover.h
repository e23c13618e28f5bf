// A mover whose copies take longer, for tests on a GPU.
#pragma once

#include <memory>
#include <vector>

#include "base/random.h"
#include "device/mover.h"

namespace longstride {

// Copies everything up to three times, in pieces: slower, and the same if nobody comes too early.
class SlowMover final : public Mover {
 public:
  SlowMover(std::unique_ptr<Mover> mover, std::uint64_t seed)
      : mover_(std::move(mover)), random_(seed) {}
  Fence fence(Lane lane) override { return mover_->fence(lane); }
  void wait(Lane lane, Fence fence, const WaitSite& site) override {
    mover_->wait(lane, fence, site);
  }
  void wait_on_host(Fence fence, const WaitSite& site) override {
    mover_->wait_on_host(fence, site);
  }
  void copy(Lane lane, std::span<const Copy> copies) override {
    std::vector<Copy> pieces;
    for (std::uint64_t times = 1 + random_.below(3); times > 0; --times)
      for (const Copy& c : copies) {
        const auto half =
            static_cast<std::int64_t>(random_.below(static_cast<std::uint64_t>(c.bytes / 256))) *
            256;
        if (half > 0) pieces.push_back({c.to, c.from, half});
        pieces.push_back({c.to + half, c.from + half, c.bytes - half});
      }
    for (const Copy& c : pieces) mover_->copy(lane, {&c, 1});
  }
  void finish() override { mover_->finish(); }
  MoveTimes take_times() override { return mover_->take_times(); }

 private:
  std::unique_ptr<Mover> mover_;
  Random random_;
};

}  // namespace longstride
