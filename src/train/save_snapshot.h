// What a save writes, as it is when this is made: copies in host memory of what fits there, the
// rest where it lives. So a save can be written by another thread while the next step runs.
//
// Weights and optimizer state change in an update alone. What stays where it lives must therefore
// be written before the next update; copies may be written at any time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "model/model_directory.h"
#include "train/optimizer.h"

namespace longstride {

// Tensors of a checkpoint, and where their bytes come from.
struct CheckpointTensors {
  WeightsToWrite weights;
  bool has_masters = false;
  std::function<void(StatePart part, std::int64_t parameter, const ByteSink& sink)> read_state;
};

// Where they live; read by the thread that runs the steps.
CheckpointTensors tensors_in_place(const ParameterSet& weights, Optimizer& optimizer);

// The bytes of host memory that copies of everything take.
std::int64_t snapshot_bytes(const ParameterSet& weights, const Optimizer& optimizer);

// Made by the thread that runs the steps; read by one other.
class SaveSnapshot {
 public:
  // Takes copies of at most `budget` bytes: first of what only the step's thread can read (a GPU's
  // memory), then of the rest. Null where not even the former fits. Weights and optimizer outlive
  // it.
  static std::unique_ptr<SaveSnapshot> take(const ParameterSet& weights, Optimizer& optimizer,
                                            std::int64_t budget);
  virtual ~SaveSnapshot() = default;

  // As long as the snapshot lives.
  virtual const CheckpointTensors& tensors() const = 0;
  // Whether all of it is copies, so that an update need not wait.
  virtual bool detached() const = 0;
};

}  // namespace longstride
