// Devices: where tensors live and operations run. Model and training code hold a Device& and never
// ask which it is.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "device/mover.h"

namespace longstride {

enum class DeviceKind : std::uint8_t { kCpu, kCuda, kShapes };

// An ordered queue of operations. On the CPU an operation has run when its call returns. The queue
// of a kShapes device runs nothing: recording passes use it to learn sizes and lifetimes from the
// real layer code, on behalf of the device that is going to run it.
class Stream {
 public:
  explicit Stream(DeviceKind kind) : kind_(kind), runs_on_(kind) {}
  Stream(DeviceKind kind, DeviceKind runs_on) : kind_(kind), runs_on_(runs_on) {}
  virtual ~Stream() = default;
  DeviceKind kind() const { return kind_; }
  // Where the recorded code is going to run; `kind` itself on a device that runs things.
  DeviceKind runs_on() const { return runs_on_; }
  // An operation has run when its call returns.
  bool runs_when_called() const { return kind_ == DeviceKind::kCpu; }
  virtual void synchronize() {}
  // Called between pieces of work of some tens of operations. Sleeps while the caller is several
  // pieces ahead of the device; further ahead, its calls would spin on a full queue.
  virtual void throttle() {}
  // Adds the seconds since the last call to *into (null: to nothing), as the operations of the
  // stream take them; the number is there after the next synchronize(). For a few hundred calls
  // between two synchronizations.
  virtual void record_elapsed(double* into);

 private:
  DeviceKind kind_, runs_on_;
  std::chrono::steady_clock::time_point last_recorded_{};
};

// A block of device memory, 256-byte aligned, zeroed. Freed on destruction.
class Memory {
 public:
  virtual ~Memory() = default;
  virtual std::byte* data() const = 0;
  virtual std::int64_t bytes() const = 0;
  // Host memory may be made ready in the background: waits until these bytes are.
  virtual void prepare(std::int64_t /*offset*/, std::int64_t /*bytes*/) {}
};

// Something a device did, in nanoseconds of std::chrono::steady_clock.
struct Activity {
  enum class Kind : std::uint8_t { kKernel, kCopy, kCopyFromHost, kCopyToHost, kFill };
  Kind kind = Kind::kKernel;
  std::string_view name;  // of the kernel, or what was copied where; stays as long as the process
  std::uint32_t queue = 0;
  std::uint64_t begin_ns = 0, end_ns = 0;
  std::int64_t bytes = 0;  // that were copied or filled
};

struct ActivityLog {
  std::vector<Activity> activities;  // by their beginning
  std::int64_t dropped = 0;          // that were not noted, or without their times
};

// Notes what a device does from the moment it is made. One at a time.
class ActivityRecorder {
 public:
  virtual ~ActivityRecorder() = default;
  // Everything that began since. The stream must be synchronized. Call once.
  virtual ActivityLog finish() = 0;
};

// A result of Device::fetch_result. 0 has passed.
struct ResultFence {
  std::uint64_t number = 0;
};

// Outlives the memory it gave. Allocating and asking are for any thread; copying and zeroing, which
// are the stream's, for the one that runs the step, never for a parallel_for.
class Device {
 public:
  virtual ~Device() = default;
  virtual DeviceKind kind() const = 0;
  virtual std::string name() const = 0;
  virtual Stream& stream() = 0;
  // Whether activations may be BF16 here; everywhere they may be F32.
  virtual bool computes_in_bf16() const { return false; }
  // Throws Error (what was asked, what is free) when the device has not that much.
  virtual std::unique_ptr<Memory> allocate(std::int64_t bytes, const std::string& what) = 0;
  // Memory of the host that copies to and from the device go through quickly.
  // It is used in `unit`s, none of which is looked at before Memory::prepare says it is ready.
  virtual std::unique_ptr<Memory> allocate_host(std::int64_t bytes, std::int64_t unit,
                                                const std::string& what) {
    static_cast<void>(unit);
    return allocate(bytes, what);
  }
  // Copies beside computing; null on the shapes device. Any number; each for one thread.
  virtual std::unique_ptr<Mover> make_mover() = 0;
  // In the order of the stream. `host` holds the data when copy_to_host returns, or after the
  // stream's next synchronize() where it may come later; it may change once copy_from_host returns.
  virtual void copy_to_host(void* host, const void* device, std::int64_t bytes) = 0;
  virtual void copy_to_host_later(void* host, const void* device, std::int64_t bytes) = 0;
  virtual void copy_from_host(void* device, const void* host, std::int64_t bytes) = 0;
  // For a small result that the host goes on with while the stream has work behind it: `host` holds
  // the data once the fence has passed, as one of the two below has said, or after the stream's
  // next synchronize(). Fences pass in order. Where a few results are under way, the oldest is
  // waited for.
  static constexpr std::int64_t kMostResultBytes = std::int64_t{256} << 10;
  virtual ResultFence fetch_result(void* host, const void* device, std::int64_t bytes);
  virtual bool has_passed(ResultFence /*fence*/) { return true; }
  virtual void wait_for(ResultFence /*fence*/) {}
  virtual void zero(void* device, std::int64_t bytes) = 0;
  // Bytes that `allocate` has given out and not got back.
  virtual std::int64_t allocated_bytes() const = 0;
  // Bytes in use on the device as its driver counts them, libraries and other programs included.
  virtual std::int64_t used_bytes() const { return allocated_bytes(); }
  // What could still be allocated: the machine's and its cgroup's limit on the CPU.
  virtual std::int64_t available_bytes() const = 0;
  // What allocate_host could still give. On a device that shares the host's memory this is the same
  // memory, not more of it.
  virtual std::int64_t available_host_bytes() const { return available_bytes(); }
  virtual bool shares_host_memory() const { return false; }
  // Null where the device, or this machine, has nothing to record with.
  virtual std::unique_ptr<ActivityRecorder> record_activity() { return nullptr; }
};

std::unique_ptr<Device> make_cpu_device();
// Throws Error where this build or this machine has no CUDA.
std::unique_ptr<Device> make_cuda_device();
bool cuda_is_available();
// `name` is "cpu", "cuda" or "auto" (cuda where there is one).
std::unique_ptr<Device> make_device(const std::string& name);
// Runs nothing, allocates nothing: for recording passes of what is going to run on `runs_on`.
Device& shapes_device(DeviceKind runs_on);

}  // namespace longstride
