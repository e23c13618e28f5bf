// Repetition in a trace: the layers of a pass request the same tensors over and over. What lives
// inside one layer is placed once and serves all of them (plan/placement_mip.h).
#pragma once

#include "model/workspace.h"

namespace longstride {

// Stretches of a trace that follow each other and request the same sizes. Members of a
// copy are indices of requests that live inside it alone; in every copy they have the same relative
// lifetimes, in the same order.
struct RepeatedBlock {
  std::vector<std::vector<std::size_t>> copies;  // at least two, none empty
};

// Blocks that do not overlap, the one that covers most requests first. Requests of 0 bytes belong
// to none.
std::vector<RepeatedBlock> find_repeated_blocks(const WorkspaceTrace& trace);

}  // namespace longstride
