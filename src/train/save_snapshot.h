// What a save writes, as it is when this is made: copies in host memory of what fits there, the
// rest where it lives. So a save can be written by another thread while the next step runs.
//
// Weights and optimizer state change in an update alone. What stays where it lives must therefore
// be written before the next update; copies may be written at any time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "model/model_directory.h"
#include "train/optimizer.h"

namespace longstride {

// Tensors of a checkpoint, and where their bytes come from.
struct CheckpointTensors {
  TensorsToWrite weights, state;
};

// Where they live; read by the thread that runs the steps.
CheckpointTensors tensors_in_place(const ParameterSet& weights, Optimizer& optimizer);

// What of a save is copied.
struct SnapshotPlan {
  bool weights = false, state = false;
  std::int64_t bytes = 0;  // of host memory
  // All is copied, so that an update need not wait for the save.
  bool detached() const { return weights && state; }
};

// Copies of at most `budget` bytes: first of what only the step's thread can read (a GPU's memory),
// then of the rest if all of it fits. Nothing where not even the former fits: a save is then
// written before training goes on.
std::optional<SnapshotPlan> plan_snapshot(const ParameterSet& weights, const Optimizer& optimizer,
                                          std::int64_t budget);

// Made by the thread that runs the steps; read by one other. Weights, optimizer and memory outlive
// it.
class SaveSnapshot {
 public:
  // Host memory for the copies of a plan, from save to save. It is pinned in the background where
  // that makes copies quicker. Throws Error where there is not enough.
  static std::unique_ptr<Memory> allocate(Device& device, const SnapshotPlan& plan);

  // Copies what the plan says into `memory`.
  SaveSnapshot(const SnapshotPlan& plan, Memory* memory, const ParameterSet& weights,
               Optimizer& optimizer);
  SaveSnapshot(const SaveSnapshot&) = delete;
  SaveSnapshot& operator=(const SaveSnapshot&) = delete;

  // As long as the snapshot lives.
  const CheckpointTensors& tensors() const { return tensors_; }
  bool detached() const { return plan_.detached(); }

 private:
  // Where each tensor's copy begins, and the end of the last one.
  using Starts = std::vector<std::int64_t>;
  void copy_weights(const ParameterSet& weights);
  void copy_state(const ParameterSet& weights, Optimizer& optimizer);
  // Calls f(offset in the tensor, where) for pieces of a copy that cross no unit of the memory.
  template <class F>
  void for_pieces(const Starts& starts, std::size_t i, const F& f) const;
  void read(const Starts& starts, std::int64_t i, const ByteSink& sink) const;

  SnapshotPlan plan_;
  Memory* memory_;
  CheckpointTensors tensors_;
  Starts weights_, state_;
};

}  // namespace longstride
