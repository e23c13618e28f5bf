// What AdamW keeps of every element: two fp32 moments and, where weights are not fp32 themselves,
// an fp32 master. It is on the device, or in host memory, from where it passes through the device
// in slices: copies in, arithmetic and copies out at the same time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "device/device.h"
#include "model/parameters.h"
#include "tensor/view.h"

namespace longstride {

enum class StatePart : std::uint8_t { kFirstMoment, kSecondMoment, kMaster };
enum class StatePlace : std::uint8_t { kDevice, kHost };

struct StateOptions {
  StatePlace place = StatePlace::kDevice;
  // In host memory: elements of a slice at most; a multiple of 64. 0: a sixteenth of all, up to 4M,
  // which are 48 MiB with masters and a millisecond of copying.
  std::int64_t slice_elements = 0;
};

// On the device: the state itself, or the slices that pass through.
struct StateBytes {
  std::int64_t device = 0, host = 0;
};

// Elements of one parameter that lie together, from a multiple of 64 on. The views are of the
// device's memory, have one dimension, and are good for operations on its stream until the visitor
// returns.
struct StateSegment {
  std::int64_t parameter = 0, first = 0, elements = 0;
  View m, v;
  View master;  // absent where the weights are the masters
};

// For one thread. The device must outlive it.
class OptimizerState {
 public:
  using Visitor = std::function<void(const StateSegment&)>;
  using Sink = std::function<void(std::span<const std::byte>)>;

  virtual ~OptimizerState() = default;

  // Once, before anything else: all is zero, and then what `fill` makes of it.
  virtual void start(const Visitor& fill) = 0;
  // Every element once, in the order of the parameters; `change` queues operations that may change
  // what the segment shows. They are done when it returns.
  virtual void visit(const Visitor& change) = 0;

  // One parameter's bytes to `sink`, in order and in pieces, without memory of the device.
  virtual void read(StatePart part, std::int64_t parameter, const Sink& sink) = 0;
  virtual void write(StatePart part, std::int64_t parameter, std::span<const std::byte> bytes) = 0;

  virtual StateBytes bytes() const = 0;
  // Of the copies since the last call; zero on the device.
  virtual MoveTimes take_times() { return {}; }
};

// What make_optimizer_state would allocate.
StateBytes optimizer_state_bytes(const ModelConfig& config, bool masters,
                                 const StateOptions& options);

// Throws Error where the device or the host has not enough memory.
std::unique_ptr<OptimizerState> make_optimizer_state(Device& device, const ModelConfig& config,
                                                     bool masters, const StateOptions& options);

}  // namespace longstride
