#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/error.h"
#include "offload/block_io.h"
#include "plan/calibration_parts.h"

namespace longstride {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point t) {
  return std::chrono::duration<double>(Clock::now() - t).count();
}

// The median of a few.
template <class F>
double median_of(int times, const F& measure) {
  std::vector<double> seconds;
  for (int i = 0; i < times; ++i) seconds.push_back(measure());
  std::nth_element(seconds.begin(), seconds.begin() + times / 2, seconds.end());
  return seconds[static_cast<std::size_t>(times / 2)];
}

// How much longer the host sleeps than it asks for.
double sleep_excess() {
  constexpr auto kAsked = std::chrono::microseconds(100);
  const double slept = median_of(25, [&] {
    const auto start = Clock::now();
    std::this_thread::sleep_for(kAsked);
    return seconds_since(start);
  });
  return std::max(0.0, slept - std::chrono::duration<double>(kAsked).count());
}

// All blocks of a file, with as many requests in flight as there may be.
double run_blocks(BlockIo& io, std::byte* memory, std::int64_t block, std::int64_t blocks,
                  bool write) {
  std::vector<BlockIo::Result> results;
  const auto start = Clock::now();
  const auto submit = [&](std::int64_t i) {
    BlockIo::Request request{.bytes = block, .offset = i * block};
    (write ? request.from = memory : request.to = memory);
    io.submit(request);
  };
  std::int64_t begun = 0, done = 0;
  while (done < blocks) {
    while (begun < blocks && begun - done < BlockIo::kMostRequests / 2) submit(begun++);
    io.wait(results);
    for (const BlockIo::Result& result : results) {
      if (result.moved != block)
        throw Error(
            fmt::format("the disk {} {} of {} bytes{}", write ? "wrote" : "read",
                        std::max<std::int64_t>(0, result.moved), block,
                        result.moved < 0
                            ? fmt::format(": {}", std::strerror(static_cast<int>(-result.moved)))
                            : ""),
            "choose another --disk-path");
      ++done;
    }
  }
  return seconds_since(start);
}

}  // namespace

void calibrate_copies(Device& device, const CalibrationShapes& shapes, MachineRates& rates) {
  // Batches of blocks as large as groups of pages.
  constexpr std::int64_t kBlock = std::int64_t{8} << 20;
  const std::int64_t bytes = shapes.copy_bytes;
  const std::unique_ptr<Memory> here = device.allocate(2 * bytes, "calibration"),
                                host = device.allocate_host(2 * bytes, bytes, "calibration");
  for (const std::int64_t at : {std::int64_t{0}, bytes}) {
    host->prepare(at, bytes);
    std::memset(host->data() + at, 1, static_cast<std::size_t>(bytes));
  }
  device.zero(here->data(), 2 * bytes);
  device.stream().synchronize();
  const std::unique_ptr<Mover> mover = device.make_mover();
  const auto queue = [&](Lane lane, std::int64_t from) {
    std::vector<Mover::Copy> copies;
    for (std::int64_t at = from; at < from + bytes; at += kBlock) {
      std::byte *on_device = here->data() + at, *on_host = host->data() + at;
      if (lane == Lane::kFromHost)
        copies.push_back({on_device, on_host, std::min(kBlock, from + bytes - at)});
      else
        copies.push_back({on_host, on_device, std::min(kBlock, from + bytes - at)});
    }
    mover->copy(lane, copies);
  };
  const auto rate = [&](bool in, bool out) {
    const double seconds = median_of(5, [&] {
      const auto start = Clock::now();
      if (in) queue(Lane::kFromHost, 0);
      if (out) queue(Lane::kToHost, bytes);
      mover->finish();
      return seconds_since(start);
    });
    return static_cast<double>((in ? bytes : 0) + (out ? bytes : 0)) / seconds;
  };
  rates.copies.from_host = rate(true, false);
  rates.copies.to_host = rate(false, true);
  rates.copies.both = rate(true, true);
  rates.host_sleep = sleep_excess();
}

void calibrate_disk(const std::filesystem::path& folder, const CalibrationShapes& shapes,
                    MachineRates& rates) {
  constexpr std::int64_t kBlock = std::int64_t{8} << 20;
  const std::int64_t blocks = shapes.disk_bytes / kBlock;
  const auto file = std::make_shared<OffloadFile>(folder, blocks * kBlock, "calibration");
  const OpenedIo opened = open_block_io(file, kBlock);
  const AlignedMemory memory = aligned_memory(kBlock);
  std::memset(memory.get(), 1, static_cast<std::size_t>(kBlock));
  const auto bytes = static_cast<double>(blocks * kBlock);
  const auto start = Clock::now();
  run_blocks(*opened.io, memory.get(), kBlock, blocks, true);
  // Where the page cache cannot be bypassed, its content goes to the disk now, and is read from it.
  fdatasync(file->descriptor());
  rates.copies.disk_write = bytes / seconds_since(start);
  posix_fadvise(file->descriptor(), 0, 0, POSIX_FADV_DONTNEED);
  rates.copies.disk_read = bytes / run_blocks(*opened.io, memory.get(), kBlock, blocks, false);
  rates.disk_bytes = static_cast<std::int64_t>(std::filesystem::space(folder).available);
}

}  // namespace longstride
