#include "device/cuda/host_arena.h"

#include <cuda_runtime.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/sizes.h"
#include "base/threads.h"
#include "device/cpu/available_memory.h"
#include "device/cuda/check.h"

namespace longstride::cuda {
namespace {

constexpr std::int64_t kPage = 4096, kHugePage = std::int64_t{2} << 20;
constexpr std::int64_t kPartBytes = std::int64_t{1} << 30;  // registered at once, or a unit

std::atomic<std::int64_t> promised{0};

std::string text(std::int64_t bytes) { return format_bytes(static_cast<double>(bytes)); }

class HostArena final : public Memory {
 public:
  HostArena(std::int64_t bytes, std::int64_t unit, const std::string& what)
      : bytes_(bytes), what_(what) {
    LS_CHECK(bytes > 0 && unit > 0, "{} bytes in units of {}", bytes, unit);
    const std::int64_t available = available_host_memory();
    if (bytes > available)
      throw Error(fmt::format("not enough host memory for {}: {} asked, {} available", what,
                              text(bytes), text(available)),
                  "set memory.host lower, or free memory on this machine");
    // Parts consist of whole pages and whole units.
    part_ = unit % kPage == 0 ? std::max(unit, kPartBytes / unit * unit) : bytes;
    mapped_ = (bytes + kHugePage - 1) / kHugePage * kHugePage + kHugePage;
    map_ = mmap(nullptr, static_cast<std::size_t>(mapped_), PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map_ == MAP_FAILED)
      throw Error(fmt::format("cannot map {} of host memory for {}: {}", text(bytes), what,
                              std::strerror(errno)),
                  "raise the address-space limit (ulimit -v), or set memory.host lower");
    const auto address = reinterpret_cast<std::uintptr_t>(map_);
    const auto huge = static_cast<std::uintptr_t>(kHugePage);
    data_ = static_cast<std::byte*>(map_) + ((address + huge - 1) / huge * huge - address);
    // Only advice: without huge pages, the kernel uses small ones.
    madvise(data_, static_cast<std::size_t>(mapped_ - kHugePage), MADV_HUGEPAGE);
    try {
      state_.resize(static_cast<std::size_t>((bytes + part_ - 1) / part_));
      promised += bytes;
      LS_CUDA(cudaGetDevice(&device_));
      const std::size_t threads = std::min<std::size_t>(
          state_.size(), std::max(1u, std::thread::hardware_concurrency() / 2));
      for (std::size_t i = 0; i < threads; ++i) threads_.push_back(start_thread([this] { run(); }));
    } catch (...) {
      give_back();
      throw;
    }
  }
  HostArena(const HostArena&) = delete;
  HostArena& operator=(const HostArena&) = delete;
  ~HostArena() override { give_back(); }

  std::byte* data() const override { return data_; }
  std::int64_t bytes() const override { return bytes_; }

  void prepare(std::int64_t offset, std::int64_t bytes) override {
    if (bytes <= 0) return;
    const auto first = static_cast<std::size_t>(offset / part_),
               last = static_cast<std::size_t>((offset + bytes - 1) / part_);
    std::unique_lock lock(mutex_);
    for (std::size_t part = first; part <= last; ++part) {
      changed_.wait(lock, [&] { return failure_ || state_.at(part) != State::kWaiting; });
      if (failure_) std::rethrow_exception(failure_);
      if (state_[part] == State::kRefused)
        throw Error(fmt::format("the driver cannot pin {} of host memory for {}: {}",
                                text(bytes_of(part)), what_, cudaGetErrorString(refusal_)),
                    "set memory.host lower, or raise the limit of locked memory (ulimit -l)");
    }
  }

 private:
  enum class State : std::uint8_t { kWaiting, kReady, kRefused };

  void give_back() {
    stopping_ = true;
    join_all(threads_);
    for (std::size_t part = 0; part < state_.size(); ++part) {
      if (state_[part] == State::kReady) cudaHostUnregister(begin_of(part));
      if (state_[part] == State::kWaiting) promised -= bytes_of(part);
    }
    munmap(map_, static_cast<std::size_t>(mapped_));
  }
  std::byte* begin_of(std::size_t part) const {
    return data_ + static_cast<std::int64_t>(part) * part_;
  }
  std::int64_t bytes_of(std::size_t part) const {
    return std::min(part_, bytes_ - static_cast<std::int64_t>(part) * part_);
  }

  // prepare() rethrows an exception that ends a thread.
  void run() {
    try {
      make_ready();
    } catch (...) {
      const std::scoped_lock lock(mutex_);
      failure_ = std::current_exception();
      changed_.notify_all();
    }
  }

  // So that registration pins existing pages instead of faulting them in. Memory stops
  // being promised as it is taken: other arenas may be made meanwhile and must not count it twice.
  static void touch(std::byte* begin, std::int64_t bytes) {
    for (std::int64_t block = 0; block < bytes; block += kHugePage) {
      const std::int64_t end = std::min(bytes, block + kHugePage);
      for (std::int64_t i = block; i < end; i += kPage)
        *const_cast<volatile std::byte*>(begin + i) = std::byte{0};
      promised -= end - block;
    }
  }

  void make_ready() {
    cudaSetDevice(device_);
    while (!stopping_) {
      const std::size_t part = next_++;
      if (part >= state_.size()) return;
      std::byte* const begin = begin_of(part);
      touch(begin, bytes_of(part));
      const cudaError_t status = cudaHostRegister(begin, static_cast<std::size_t>(bytes_of(part)),
                                                  cudaHostRegisterDefault);
      if (status != cudaSuccess) cudaGetLastError();
      const std::scoped_lock lock(mutex_);
      state_[part] = status == cudaSuccess ? State::kReady : State::kRefused;
      if (status != cudaSuccess) refusal_ = status;
      changed_.notify_all();
    }
  }

  std::int64_t bytes_, part_ = 0, mapped_ = 0;
  std::string what_;
  void* map_ = nullptr;
  std::byte* data_ = nullptr;
  int device_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<State> state_;
  cudaError_t refusal_ = cudaSuccess;
  std::exception_ptr failure_;  // of a background thread
  std::atomic<std::size_t> next_{0};
  std::atomic<bool> stopping_{false};
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<Memory> make_host_arena(std::int64_t bytes, std::int64_t unit,
                                        const std::string& what) {
  return std::make_unique<HostArena>(bytes, unit, what);
}

std::int64_t promised_host_memory() { return promised; }

std::int64_t available_host_memory() {
  return std::max<std::int64_t>(0, available_memory() - promised);
}

}  // namespace longstride::cuda
