// How the processes that hold the same parameters share the work of an update (parallel.data): each
// sums the gradients of a shard, has its moments and masters, and updates its weights.
//
// Trainable parameters are cut into pieces, in their order; a shard is a row of pieces. The pieces
// do not depend on the number of shards, so sums over a piece (of squares, for the norm) have the
// same bits however many there are.
#pragma once

#include <cstdint>
#include <vector>

#include "model/parameter_specs.h"

namespace longstride {

// Elements [first, first + elements) of one parameter.
struct ParameterPiece {
  std::int64_t parameter = 0, first = 0, elements = 0;
  bool operator==(const ParameterPiece&) const = default;
};

// A multiple of everything that the state's columns are cut at. 4 MiB of gradients.
inline constexpr std::int64_t kPieceElements = std::int64_t{1} << 20;

// Of all trainable parameters. A rest that would be too small for moments in 8 bits belongs to the
// piece before it.
std::vector<ParameterPiece> parameter_pieces(const std::vector<ParameterSpec>& specs,
                                             std::int64_t piece_elements = kPieceElements);

// Pieces of each shard: of about equally many elements. Where there are fewer pieces than shards,
// some have none.
std::vector<std::vector<ParameterPiece>> cut_shards(const std::vector<ParameterSpec>& specs,
                                                    std::int64_t shards,
                                                    std::int64_t piece_elements = kPieceElements);

// The shard with the most elements.
std::int64_t largest_shard(const std::vector<ParameterSpec>& specs, std::int64_t shards);

// The list of parameters of a shard: others are frozen, and a parameter that is cut has the
// elements of its part alone, from `first` on.
struct StateShard {
  std::vector<ParameterSpec> specs;
  std::vector<std::int64_t> first;  // by parameter

  std::int64_t elements(std::int64_t parameter) const {
    const ParameterSpec& spec = specs[static_cast<std::size_t>(parameter)];
    return spec.trainable ? spec.shape.elements() : 0;
  }
};
StateShard make_shard(const std::vector<ParameterSpec>& specs,
                      const std::vector<ParameterPiece>& pieces);
// One of several; the list itself if there is one.
StateShard shard_of(const std::vector<ParameterSpec>& specs, std::int64_t shards,
                    std::int64_t shard);

}  // namespace longstride
