// The tensors of a save: copies in host memory of what fits there, the rest in place. So another
// thread can write a save while the next step runs.
//
// Only an update changes weights and optimizer state. Tensors in place must therefore be written
// before the next update; copies may be written at any time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "model/model_directory.h"
#include "train/optimizer.h"

namespace longstride {

// Tensors of a checkpoint and the source of their bytes.
struct CheckpointTensors {
  TensorsToWrite weights, state;
};

// The tensors in place; only the thread that runs the steps may read them.
CheckpointTensors tensors_in_place(const ParameterSet& weights, Optimizer& optimizer);

// Which tensors of a save are copied.
struct SnapshotPlan {
  bool weights = false, state = false;
  std::int64_t bytes = 0;  // of host memory
  // Everything is copied, so that an update need not wait for the save.
  bool detached() const { return weights && state; }
};

// Plans copies of at most `budget` bytes: first of tensors that only the step's thread can read (in
// GPU memory), then of the rest if all of it fits. Returns nothing if not even the former fit:
// training then waits for saves.
std::optional<SnapshotPlan> plan_snapshot(const ParameterSet& weights, const Optimizer& optimizer,
                                          std::int64_t budget);

// Constructed by the thread that runs the steps; read by one other thread. Weights, optimizer and
// memory must outlive it.
class SaveSnapshot {
 public:
  // Allocates host memory for the copies of a plan, reused by every save. It is pinned in the
  // background if that makes copies faster. Throws Error if there is not enough.
  static std::unique_ptr<Memory> allocate(Device& device, const SnapshotPlan& plan);

  // Copies the plan's tensors into `memory`.
  SaveSnapshot(const SnapshotPlan& plan, Memory* memory, const ParameterSet& weights,
               Optimizer& optimizer);
  SaveSnapshot(const SaveSnapshot&) = delete;
  SaveSnapshot& operator=(const SaveSnapshot&) = delete;

  // Valid as long as the snapshot.
  const CheckpointTensors& tensors() const { return tensors_; }
  bool detached() const { return plan_.detached(); }

 private:
  // Where each tensor's copy begins, and the end of the last one.
  using Starts = std::vector<std::int64_t>;
  void copy_weights(const ParameterSet& weights);
  void copy_state(const ParameterSet& weights, Optimizer& optimizer);
  // Calls f(offset in the tensor, address) for pieces of a copy that cross no unit of the memory.
  template <class F>
  void for_pieces(const Starts& starts, std::size_t i, const F& f) const;
  void read(const Starts& starts, std::int64_t i, const ByteSink& sink) const;

  SnapshotPlan plan_;
  Memory* memory_;
  CheckpointTensors tensors_;
  Starts weights_, state_;
};

}  // namespace longstride
