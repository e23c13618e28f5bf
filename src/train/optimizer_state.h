// The optimizer's state of every trainable parameter (train/state_columns.h). It is on the device,
// in host memory, or partly there and the rest on disk. Offloaded state passes through the device
// in slices: read-ahead, copies in, compute, copies out and writing overlap.
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
  // Offloaded: maximum elements of a slice; a multiple of cut_alignment(), which is 64 if all
  // columns are fp32. 0: a sixteenth of all, up to 4M, which are 48 MiB of AdamW with masters and a
  // millisecond of copying.
  std::int64_t slice_elements = 0;
  // kDisk: host memory for disk buffers, which are always allocated, and for as many slices as fit
  // in the rest. Nothing goes to disk if all slices fit.
  std::int64_t host_bytes = 0;
  std::filesystem::path disk_directory = {};
  MakeDiskQueue make_disk = nullptr;  // null: a queue in disk_directory
  // Processes that hold the same parameters, and this one's number: each has the state of a part of
  // them (train/state_shards.h).
  std::int64_t shards = 1, shard = 0;
};

// On the device: the state itself, or the slots that slices pass through. In host memory: slices,
// and buffers for those on disk.
struct StateBytes {
  std::int64_t device = 0, host = 0, disk = 0;
};

// Contiguous elements of one parameter, starting at a multiple of 64 and of every column's block.
// The views, one per column, are in device memory, have one dimension, and are valid for operations
// on its stream until the visitor returns. Columns that the parameter does not have are absent.
struct StateSegment {
  static constexpr std::size_t kMaxColumns = 8;

  std::int64_t parameter = 0, first = 0, elements = 0;
  std::array<View, kMaxColumns> columns = {};
  const View& column(std::int64_t c) const { return columns[static_cast<std::size_t>(c)]; }
};

// Not thread-safe: the thread that runs the step owns it; for `read` see on_device(). The device
// must outlive it.
class OptimizerState {
 public:
  using Visitor = std::function<void(const StateSegment&)>;
  using Sink = std::function<void(std::span<const std::byte>)>;
  // All bytes of a parameter's column, valid during the call that uses the source.
  using Source =
      std::function<std::span<const std::byte>(std::int64_t column, std::int64_t parameter)>;

  explicit OptimizerState(StateColumns columns);
  OptimizerState(const OptimizerState&) = delete;
  OptimizerState& operator=(const OptimizerState&) = delete;
  virtual ~OptimizerState() = default;

  const StateColumns& columns() const { return columns_; }

  // Call once, before anything else: zeroes the state, then calls `fill` on all of it.
  virtual void start(const Visitor& fill) = 0;
  // Visits every element once, in the order of the parameters; `change` queues operations that may
  // change the segment's values. They are complete when visit returns.
  virtual void visit(const Visitor& change) = 0;

  // Passes the bytes of a parameter's column, which it must have, to `sink`, in order and in
  // pieces, without using device memory. Fastest in the order of the parameters, column after
  // column.
  virtual void read(std::int64_t column, std::int64_t parameter, const Sink& sink) = 0;
  // Replaces everything by the values of `source`, which is called for the columns of each
  // parameter in the fastest order, several times for a large one.
  virtual void load(const Source& source) = 0;

  virtual StateBytes bytes() const = 0;
  // True: only the thread that runs the step may call `read`. False: any one thread may, while no
  // other function is called.
  virtual bool on_device() const { return false; }
  // For a state on the device: copies bytes of one parameter's column from `offset` on, in stream
  // order; they are valid when it returns.
  virtual void copy_out(std::int64_t column, std::int64_t parameter, std::int64_t offset,
                        std::span<std::byte> to);
  // Times of copies and the disk since the last call; zero on the device.
  virtual OffloadTimes take_times() { return {}; }

 private:
  StateColumns columns_;
};

// What make_optimizer_state would allocate.
StateBytes optimizer_state_bytes(const std::vector<ParameterSpec>& specs,
                                 const StateColumns& columns, const StateOptions& options);

// Throws Error if the device, the host or the disk has too little space.
std::unique_ptr<OptimizerState> make_optimizer_state(Device& device,
                                                     const std::vector<ParameterSpec>& specs,
                                                     const StateColumns& columns,
                                                     const StateOptions& options);

}  // namespace longstride
