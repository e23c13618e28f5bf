// Devices: where tensors live and operations run. Model and training code hold a Device& and do not
// depend on its kind.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "device/mover.h"

namespace longstride {

enum class DeviceKind : std::uint8_t { kCpu, kCuda, kShapes };

// An ordered queue of operations. On the CPU an operation has run when its call returns. The queue
// of a kShapes device runs nothing: recording passes use it to learn sizes and lifetimes from the
// real layer code, on behalf of the device that will run it. Not thread-safe: the thread that runs
// the step owns it.
class Stream {
 public:
  explicit Stream(DeviceKind kind) : kind_(kind), runs_on_(kind) {}
  Stream(DeviceKind kind, DeviceKind runs_on) : kind_(kind), runs_on_(runs_on) {}
  virtual ~Stream() = default;
  DeviceKind kind() const { return kind_; }
  // Where the recorded code will run; the same as `kind` on a device that runs operations.
  DeviceKind runs_on() const { return runs_on_; }
  // Whether an operation has run when its call returns.
  bool runs_when_called() const { return kind_ == DeviceKind::kCpu; }
  virtual void synchronize() {}
  // To be called after every few tens of operations. Sleeps while the caller is several such calls
  // ahead of the device; further ahead, queueing would spin on a full queue.
  virtual void throttle() {}
  // Adds the seconds since the previous call, in the stream's time, to *into (null: discards them).
  // *into is up to date after the next synchronize(). Meant for a few hundred calls between two
  // synchronizations.
  virtual void record_elapsed(double* into);

 private:
  DeviceKind kind_, runs_on_;
  std::chrono::steady_clock::time_point last_recorded_{};
};

// A block of device memory, 256-byte aligned, zeroed. Freed on destruction. Thread-safe.
class Memory {
 public:
  virtual ~Memory() = default;
  virtual std::byte* data() const = 0;
  virtual std::int64_t bytes() const = 0;
  // Waits until these bytes are ready: host memory may be prepared in the background.
  virtual void prepare(std::int64_t /*offset*/, std::int64_t /*bytes*/) {}
};

// One operation of a device. Times are nanoseconds of std::chrono::steady_clock.
struct Activity {
  enum class Kind : std::uint8_t { kKernel, kCopy, kCopyFromHost, kCopyToHost, kFill };
  Kind kind = Kind::kKernel;
  std::string_view name;  // of the kernel, or the kind of copy; valid until the process ends
  std::uint32_t queue = 0;
  std::uint64_t begin_ns = 0, end_ns = 0;
  std::int64_t bytes = 0;  // that were copied or filled
};

struct ActivityLog {
  std::vector<Activity> activities;  // ordered by begin_ns
  std::int64_t dropped = 0;          // activities not recorded, or recorded without times
};

// Records a device's activity from its construction on. Only one may exist at a time. Not
// thread-safe.
class ActivityRecorder {
 public:
  virtual ~ActivityRecorder() = default;
  // All activities that began since then. Requires a synchronized stream. Call once.
  virtual ActivityLog finish() = 0;
};

// Identifies a result of Device::fetch_result. Number 0 has passed.
struct ResultFence {
  std::uint64_t number = 0;
};

// Outlives the memory it allocated. Any thread may allocate and query. Copies, results and zero()
// use the stream: only the thread that runs the step may call them, never inside parallel_for.
class Device {
 public:
  virtual ~Device() = default;
  virtual DeviceKind kind() const = 0;
  // Where recorded code will run; the same as `kind` on a device that runs operations.
  virtual DeviceKind runs_on() const { return kind(); }
  virtual std::string name() const = 0;
  virtual Stream& stream() = 0;
  // Whether activations may be BF16; every device supports F32.
  virtual bool computes_in_bf16() const { return false; }
  // Zeroed memory, which every lane of a mover may use at once. Throws Error, with the bytes
  // requested and free, if the device has too little memory.
  virtual std::unique_ptr<Memory> allocate(std::int64_t bytes, const std::string& what) = 0;
  // Host memory for fast copies to and from the device. The caller accesses it in `unit`s, each
  // only after Memory::prepare has returned for it.
  virtual std::unique_ptr<Memory> allocate_host(std::int64_t bytes, std::int64_t unit,
                                                const std::string& what) {
    static_cast<void>(unit);
    return allocate(bytes, what);
  }
  // Makes a mover for copies that overlap computing; null on the shapes device. There may be
  // several, each used by one thread.
  virtual std::unique_ptr<Mover> make_mover() = 0;
  // Copies run in stream order. `host` holds the data when copy_to_host returns, or, for
  // copy_to_host_later, after the stream's next synchronize(). The caller may change `host` once
  // copy_from_host returns.
  virtual void copy_to_host(void* host, const void* device, std::int64_t bytes) = 0;
  virtual void copy_to_host_later(void* host, const void* device, std::int64_t bytes) = 0;
  virtual void copy_from_host(void* device, const void* host, std::int64_t bytes) = 0;
  // For a small result that the host needs while later work is still in the stream. `host` holds
  // the data once has_passed(fence) is true or wait_for(fence) has returned, or after the stream's
  // next synchronize(). Fences pass in order. With several results in flight, waits for the oldest.
  static constexpr std::int64_t kMostResultBytes = std::int64_t{256} << 10;
  virtual ResultFence fetch_result(void* host, const void* device, std::int64_t bytes);
  virtual bool has_passed(ResultFence /*fence*/) { return true; }
  virtual void wait_for(ResultFence /*fence*/) {}
  virtual void zero(void* device, std::int64_t bytes) = 0;
  // Bytes given out by `allocate` and not freed yet.
  virtual std::int64_t allocated_bytes() const = 0;
  // Bytes in use on the device according to its driver, including libraries and other programs.
  virtual std::int64_t used_bytes() const { return allocated_bytes(); }
  // Bytes that could still be allocated; on the CPU, within the machine's and the cgroup's limits.
  virtual std::int64_t available_bytes() const = 0;
  // Bytes that allocate_host could still give. On a device that shares the host's memory these are
  // the same bytes, not additional ones.
  virtual std::int64_t available_host_bytes() const { return available_bytes(); }
  virtual bool shares_host_memory() const { return false; }
  // Null if this device or machine cannot record.
  virtual std::unique_ptr<ActivityRecorder> record_activity() { return nullptr; }
};

std::unique_ptr<Device> make_cpu_device();
// Throws Error if this build or this machine has no CUDA. `index`: of the GPU, from 0. One process
// uses one GPU.
std::unique_ptr<Device> make_cuda_device(int index = 0);
bool cuda_is_available();
// 0 without CUDA.
int cuda_device_count();
// `name` is "cpu", "cuda" or "auto" (cuda if available); `index` is that of the GPU.
std::unique_ptr<Device> make_device(const std::string& name, int index = 0);
// Runs nothing and allocates nothing: for recording passes of code that will run on `runs_on`, and
// for plans of a machine that is not here.
Device& shapes_device(DeviceKind runs_on);
// The same with the name and memory of a certain machine.
struct AbsentMachine {
  std::string device = "shapes";
  std::int64_t device_bytes = std::numeric_limits<std::int64_t>::max();
  std::int64_t host_bytes = std::numeric_limits<std::int64_t>::max();
};
std::unique_ptr<Device> make_shapes_device(DeviceKind runs_on, const AbsentMachine& machine);

}  // namespace longstride
