// What an optimizer keeps of every trainable parameter (train/state_columns.h). It is on the
// device; or in host memory, or the first part of it there and the rest on disk, from where it
// passes through the device in slices: reading ahead, copies in, arithmetic, copies out and writing
// at the same time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "device/device.h"
#include "model/parameters.h"
#include "offload/offload_capacity.h"
#include "offload/offload_times.h"
#include "tensor/view.h"
#include "train/state_columns.h"

namespace longstride {

enum class StatePlace : std::uint8_t { kDevice, kHost, kDisk };

struct StateOptions {
  StatePlace place = StatePlace::kDevice;
  // Off the device: elements of a slice at most; a multiple of cut_alignment(), which is 64 where
  // all is fp32. 0: a sixteenth of all, up to 4M, which are 48 MiB of AdamW with masters and a
  // millisecond of copying.
  std::int64_t slice_elements = 0;
  // kDisk: of host memory, for buffers on the way to the disk, which there are in any case, and as
  // many slices as fit beside them. Nothing goes to the disk where all fits.
  std::int64_t host_bytes = 0;
  std::filesystem::path disk_directory = {};
  MakeDiskQueue make_disk = nullptr;  // null: a queue in disk_directory
};

// On the device: the state itself, or the slices that pass through. In host memory: slices, and
// buffers of those on disk.
struct StateBytes {
  std::int64_t device = 0, host = 0, disk = 0;
};

// Elements of one parameter that lie together, from a multiple of 64 and of every block on. The
// views, one for each column, are of the device's memory, have one dimension, and are good for
// operations on its stream until the visitor returns.
struct StateSegment {
  static constexpr std::size_t kMaxColumns = 8;

  std::int64_t parameter = 0, first = 0, elements = 0;
  std::array<View, kMaxColumns> columns = {};
  const View& column(std::int64_t c) const { return columns[static_cast<std::size_t>(c)]; }
};

// For one thread. The device must outlive it.
class OptimizerState {
 public:
  using Visitor = std::function<void(const StateSegment&)>;
  using Sink = std::function<void(std::span<const std::byte>)>;
  // All bytes of a parameter's column; they stay as long as the call that asks.
  using Source =
      std::function<std::span<const std::byte>(std::int64_t column, std::int64_t parameter)>;

  explicit OptimizerState(StateColumns columns);
  OptimizerState(const OptimizerState&) = delete;
  OptimizerState& operator=(const OptimizerState&) = delete;
  virtual ~OptimizerState() = default;

  const StateColumns& columns() const { return columns_; }

  // Once, before anything else: all is zero, and then what `fill` makes of it.
  virtual void start(const Visitor& fill) = 0;
  // Every element once, in the order of the parameters; `change` queues operations that may change
  // what the segment shows. They are done when it returns.
  virtual void visit(const Visitor& change) = 0;

  // One trainable parameter's bytes to `sink`, in order and in pieces, without memory of the
  // device. Quickest in the order of the parameters, column after column.
  virtual void read(std::int64_t column, std::int64_t parameter, const Sink& sink) = 0;
  // Everything anew from `source`, which is asked in whatever order is quickest, for a large
  // parameter several times.
  virtual void load(const Source& source) = 0;

  virtual StateBytes bytes() const = 0;
  // Where it is on the device, `read` is for the thread that runs the step; elsewhere for any one
  // thread, while nothing else of this is called.
  virtual bool on_device() const { return false; }
  // For a state on the device: bytes of one parameter's column from `offset` on, in the order of
  // the device's stream; they are there when it returns.
  virtual void copy_out(std::int64_t column, std::int64_t parameter, std::int64_t offset,
                        std::span<std::byte> to);
  // Of copies and the disk since the last call; zero on the device.
  virtual OffloadTimes take_times() { return {}; }

 private:
  StateColumns columns_;
};

// What make_optimizer_state would allocate.
StateBytes optimizer_state_bytes(const std::vector<ParameterSpec>& specs,
                                 const StateColumns& columns, const StateOptions& options);

// Throws Error where the device, the host or the disk has not enough room.
std::unique_ptr<OptimizerState> make_optimizer_state(Device& device,
                                                     const std::vector<ParameterSpec>& specs,
                                                     const StateColumns& columns,
                                                     const StateOptions& options);

}  // namespace longstride
