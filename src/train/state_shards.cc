#include "train/state_shards.h"

#include <algorithm>

#include "base/error.h"
#include "train/optimizer.h"

namespace longstride {

std::vector<ParameterPiece> parameter_pieces(const std::vector<ParameterSpec>& specs,
                                             std::int64_t piece_elements) {
  LS_CHECK(piece_elements >= kSmallestCoded && piece_elements % kSmallestCoded == 0,
           "pieces of {} elements", piece_elements);
  std::vector<ParameterPiece> pieces;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    if (!specs[i].trainable) continue;
    const std::int64_t elements = specs[i].shape.elements();
    for (std::int64_t first = 0; first < elements;) {
      std::int64_t end = std::min(elements, first + piece_elements);
      if (elements - end < kSmallestCoded) end = elements;
      pieces.push_back({static_cast<std::int64_t>(i), first, end - first});
      first = end;
    }
  }
  return pieces;
}

std::vector<std::vector<ParameterPiece>> cut_shards(const std::vector<ParameterSpec>& specs,
                                                    std::int64_t shards,
                                                    std::int64_t piece_elements) {
  const std::vector<ParameterPiece> pieces = parameter_pieces(specs, piece_elements);
  double all = 0, before = 0;
  for (const ParameterPiece& piece : pieces) all += static_cast<double>(piece.elements);
  std::vector<std::vector<ParameterPiece>> cut(static_cast<std::size_t>(shards));
  std::int64_t shard = 0;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const double middle = before + static_cast<double>(pieces[i].elements) / 2;
    const auto wanted = static_cast<std::int64_t>(middle / all * static_cast<double>(shards));
    const std::int64_t left = std::ssize(pieces) - static_cast<std::int64_t>(i);
    // Every shard has a piece, as far as there are any.
    if (shard + 1 < shards && !cut[static_cast<std::size_t>(shard)].empty() &&
        (wanted > shard || left <= shards - shard - 1))
      ++shard;
    cut[static_cast<std::size_t>(shard)].push_back(pieces[i]);
    before += static_cast<double>(pieces[i].elements);
  }
  return cut;
}

std::int64_t largest_shard(const std::vector<ParameterSpec>& specs, std::int64_t shards) {
  const std::vector<std::vector<ParameterPiece>> cut = cut_shards(specs, shards);
  return std::ranges::max_element(cut, {},
                                  [](const std::vector<ParameterPiece>& pieces) {
                                    std::int64_t elements = 0;
                                    for (const ParameterPiece& piece : pieces)
                                      elements += piece.elements;
                                    return elements;
                                  }) -
         cut.begin();
}

StateShard make_shard(const std::vector<ParameterSpec>& specs,
                      const std::vector<ParameterPiece>& pieces) {
  StateShard shard{specs, std::vector<std::int64_t>(specs.size())};
  std::vector<std::int64_t> elements(specs.size());
  for (const ParameterPiece& piece : pieces) {
    const auto i = static_cast<std::size_t>(piece.parameter);
    if (elements[i] == 0) shard.first[i] = piece.first;
    elements[i] += piece.elements;
  }
  for (std::size_t i = 0; i < specs.size(); ++i) {
    ParameterSpec& spec = shard.specs[i];
    if (!spec.trainable) continue;
    spec.trainable = elements[i] > 0;
    spec.follows = false;
    if (spec.trainable && elements[i] < spec.shape.elements()) spec.shape = Shape({elements[i]});
  }
  return shard;
}

StateShard shard_of(const std::vector<ParameterSpec>& specs, std::int64_t shards,
                    std::int64_t shard) {
  if (shards == 1) return {specs, std::vector<std::int64_t>(specs.size())};
  return make_shard(specs, cut_shards(specs, shards)[static_cast<std::size_t>(shard)]);
}

}  // namespace longstride
