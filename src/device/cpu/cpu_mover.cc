#include "device/cpu/cpu_mover.h"

#include <chrono>
#include <cstring>
#include <utility>

#include "base/trace_spans.h"

namespace longstride {
namespace {

class CpuMover final : public Mover {
 public:
  Fence fence(Lane lane) override { return {lane, 0}; }
  void wait(Lane, Fence, const WaitSite&) override {}
  void wait_on_host(Fence, const WaitSite&) override {}
  void copy(Lane lane, std::span<const Copy> copies) override {
    std::int64_t bytes = 0;
    for (const Copy& c : copies) bytes += c.bytes;
    const TraceSpan span(lane == Lane::kFromHost ? TraceTrack::kFromHost : TraceTrack::kToHost,
                         {.what = "copy", .bytes = bytes});
    const auto begin = std::chrono::steady_clock::now();
    for (const Copy& c : copies) std::memcpy(c.to, c.from, static_cast<std::size_t>(c.bytes));
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    (lane == Lane::kFromHost ? times_.from_host_s : times_.to_host_s) += seconds;
    times_.blocked_s += seconds;  // copies do not overlap computing
  }
  void finish() override {}
  MoveTimes take_times() override { return std::exchange(times_, {}); }

 private:
  MoveTimes times_;
};

}  // namespace

std::unique_ptr<Mover> make_cpu_mover() { return std::make_unique<CpuMover>(); }

}  // namespace longstride
