// The optimizer's state in host memory.
//
// All parameters in a row, each from a multiple of 64 elements on, are cut into slices of equal
// size, across parameters as it comes. A slice lies together in host memory, [m][v][master], and
// passes through one of a few slots on the device as a single copy each way:
//
//   from host   | in 0 | in 1 | in 2 | in 3 | in 4 ...       in 4 takes the slot of 0: after out 0
//   compute            | 0 |  | 1 |  | 2 | ...
//   to host                | out 0 | out 1 | out 2 ...
#pragma once

#include "train/optimizer_state.h"

namespace longstride {

StateBytes host_state_bytes(const ModelConfig& config, bool masters, const StateOptions& options);
std::unique_ptr<OptimizerState> make_host_state(Device& device, const ModelConfig& config,
                                                bool masters, const StateOptions& options);

}  // namespace longstride
