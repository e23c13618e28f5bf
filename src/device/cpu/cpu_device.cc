// The CPU as a device: memory mapped from the kernel, which zeroes it at first touch.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "base/error.h"
#include "base/sizes.h"
#include "base/thread_pool.h"
#include "device/cpu/available_memory.h"
#include "device/cpu/cpu_mover.h"
#include "device/device.h"

namespace longstride {
namespace {

constexpr std::int64_t kHugePage = std::int64_t{2} << 20;

std::int64_t round_up(std::int64_t n, std::int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

class CpuMemory final : public Memory {
 public:
  CpuMemory(std::int64_t bytes, const std::string& what, std::atomic<std::int64_t>& allocated)
      : bytes_(bytes), allocated_(allocated) {
    // Large blocks are aligned to huge pages, so that huge pages can back all of them.
    const bool large = bytes >= 4 * kHugePage;
    const std::int64_t unit = large ? kHugePage : sysconf(_SC_PAGESIZE);
    mapped_ = round_up(bytes > 0 ? bytes : 1, unit) + (large ? kHugePage : 0);
    map_ = mmap(nullptr, static_cast<std::size_t>(mapped_), PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map_ == MAP_FAILED) {
      throw Error(
          fmt::format("cannot allocate {} of memory for {}: {}",
                      format_bytes(static_cast<double>(bytes)), what, std::strerror(errno)),
          "use a smaller context, chunk or model, or raise the address-space limit (ulimit -v)");
    }
    data_ = static_cast<std::byte*>(map_);
    if (large) {
      const auto address = reinterpret_cast<std::uintptr_t>(map_);
      data_ += round_up(static_cast<std::int64_t>(address), kHugePage) -
               static_cast<std::int64_t>(address);
      // Only advice: without huge pages, the kernel uses small ones.
      madvise(data_, static_cast<std::size_t>(round_up(bytes, kHugePage)), MADV_HUGEPAGE);
    }
    allocated_ += bytes_;
  }
  CpuMemory(const CpuMemory&) = delete;
  CpuMemory& operator=(const CpuMemory&) = delete;
  ~CpuMemory() override {
    munmap(map_, static_cast<std::size_t>(mapped_));
    allocated_ -= bytes_;
  }
  std::byte* data() const override { return data_; }
  std::int64_t bytes() const override { return bytes_; }

 private:
  std::int64_t bytes_ = 0, mapped_ = 0;
  void* map_ = nullptr;
  std::byte* data_ = nullptr;
  std::atomic<std::int64_t>& allocated_;
};

class CpuDevice final : public Device {
 public:
  DeviceKind kind() const override { return DeviceKind::kCpu; }

  std::string name() const override {
    std::ifstream in("/proc/cpuinfo");
    std::string line;
    while (std::getline(in, line)) {
      const std::size_t colon = line.find(": ");
      if (line.starts_with("model name") && colon != std::string::npos)
        return line.substr(colon + 2);
    }
    return "CPU";
  }

  Stream& stream() override { return stream_; }

  std::unique_ptr<Memory> allocate(std::int64_t bytes, const std::string& what) override {
    LS_CHECK(bytes >= 0, "{} bytes for {}", bytes, what);
    const std::int64_t available = available_bytes();
    if (bytes > available) {
      throw Error(
          fmt::format("not enough memory for {}: {} asked, {} available ({} already allocated)",
                      what, format_bytes(static_cast<double>(bytes)),
                      format_bytes(static_cast<double>(available)),
                      format_bytes(static_cast<double>(allocated_bytes()))),
          "use a smaller context, chunk or model, or free memory on this machine");
    }
    return std::make_unique<CpuMemory>(bytes, what, allocated_);
  }

  std::unique_ptr<Mover> make_mover() override { return make_cpu_mover(); }

  void copy_to_host(void* host, const void* device, std::int64_t bytes) override {
    check_thread();
    if (bytes > 0) std::memcpy(host, device, static_cast<std::size_t>(bytes));
  }
  void copy_to_host_later(void* host, const void* device, std::int64_t bytes) override {
    copy_to_host(host, device, bytes);
  }
  void copy_from_host(void* device, const void* host, std::int64_t bytes) override {
    check_thread();
    if (bytes > 0) std::memcpy(device, host, static_cast<std::size_t>(bytes));
  }
  void zero(void* device, std::int64_t bytes) override {
    check_thread();
    if (bytes > 0) std::memset(device, 0, static_cast<std::size_t>(bytes));
  }

  std::int64_t allocated_bytes() const override { return allocated_; }

  std::int64_t available_bytes() const override {
    // The kernel counts memory once it is touched, so memory allocated but not touched yet is
    // subtracted here. Resident memory includes the process's own heap, so a little is missed.
    const std::int64_t promised =
        std::max<std::int64_t>(0, allocated_bytes() - resident_anonymous_memory());
    return std::max<std::int64_t>(0, available_memory() - promised);
  }
  bool shares_host_memory() const override { return true; }

 private:
  // Harmless on the CPU, but not on devices whose copies go through a queue.
  static void check_thread() {
    LS_CHECK(!in_parallel_for(), "one thread alone uses a device's stream");
  }
  Stream stream_{DeviceKind::kCpu};
  std::atomic<std::int64_t> allocated_{0};
};

}  // namespace

std::unique_ptr<Device> make_cpu_device() { return std::make_unique<CpuDevice>(); }

}  // namespace longstride
