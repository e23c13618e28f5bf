// training.chunk = "auto". The chunk decides bits, so the choice depends on the model, the context,
// the device's name and its total memory alone: not on [memory], on what is free, or on a
// calibration. A resumed run keeps its chunk.
#pragma once

#include <cstdint>
#include <vector>

#include "train/step.h"

namespace longstride {

// What a run computes, apart from its chunk.
struct ChunkCase {
  const ModelConfig& model;
  const std::vector<ParameterSpec>& specs;
  const NumericsChoice& numerics;
  std::int64_t context = 0, page = 0;
};

// Of the chunks from 1024 to 16384 tokens that are multiples of the page, the one with which a
// training step is predicted to take the least time on a device of that name and memory beside a
// host with enough of it; the shortest of those within 1% of that. With sparse layers at most 4096:
// the pages of a chunk share their union of selected ones. On a CPU 1024, or a page.
std::int64_t auto_chunk(const ChunkCase& run, const Device& device);

// For a forward pass alone: the longest of those chunks whose workspace takes at most a quarter of
// the device's memory beside the weights.
std::int64_t auto_forward_chunk(const ChunkCase& run, Device& device);

}  // namespace longstride
