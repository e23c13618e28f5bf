// The offloaded optimizer state: slices in host memory and on disk (train/slice_capacity.h), each
// of which passes through one of a few slots on the device, as a single copy each way:
//
//   from disk   | 4    | 5    | 6    | 7 ...
//   from host   | in 0 | in 1 | in 2 | in 3 | in 4 ...       in 4 reuses the slot of 0: after out 0
//   compute            | 0 |  | 1 |  | 2 | ...
//   to host                | out 0 | out 1 | out 2 ...
//   to disk                        | 0     | 1 ...
#pragma once

#include "train/optimizer_state.h"

namespace longstride {

StateBytes sliced_state_bytes(const std::vector<ParameterSpec>& specs, const StateColumns& columns,
                              const StateOptions& options);
std::unique_ptr<OptimizerState> make_sliced_state(Device& device,
                                                  const std::vector<ParameterSpec>& specs,
                                                  const StateColumns& columns,
                                                  const StateOptions& options);

}  // namespace longstride
