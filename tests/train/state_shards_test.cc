#include "train/state_shards.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "train/optimizer.h"

namespace longstride {
namespace {

ParameterSpec spec_of(const std::string& name, Shape shape, bool trainable = true) {
  ParameterSpec spec;
  spec.name = name;
  spec.shape = shape;
  spec.trainable = trainable;
  return spec;
}

// Around the sizes at which a rest is a piece of its own.
std::vector<ParameterSpec> some_parameters() {
  constexpr std::int64_t kSmall = kSmallestCoded;
  return {spec_of("tiny", {7}),
          spec_of("frozen", {3 * kSmall}, false),
          spec_of("even", {2, 2 * kSmall}),
          spec_of("rest too small", {3 * kSmall - 1}),
          spec_of("rest just large enough", {3 * kSmall}),
          spec_of("large", {100, kSmall / 4 + 3})};
}

TEST(StateShards, PiecesCoverTrainedParametersOnce) {
  const std::vector<ParameterSpec> specs = some_parameters();
  const auto pieces = parameter_pieces(specs, 2 * kSmallestCoded);
  std::vector<std::int64_t> covered(specs.size());
  for (const ParameterPiece& piece : pieces) {
    const auto i = static_cast<std::size_t>(piece.parameter);
    EXPECT_EQ(piece.first, covered[i]) << specs[i].name;
    covered[i] += piece.elements;
    // Moments in 8 bits are chosen by the size of a parameter, or of its part.
    EXPECT_TRUE(piece.elements >= kSmallestCoded || piece.elements == specs[i].shape.elements());
    EXPECT_LT(piece.elements, 3 * kSmallestCoded);
  }
  for (std::size_t i = 0; i < specs.size(); ++i)
    EXPECT_EQ(covered[i], specs[i].trainable ? specs[i].shape.elements() : 0) << specs[i].name;
  EXPECT_EQ(std::ranges::count(pieces, 3, &ParameterPiece::parameter), 1);
  EXPECT_EQ(std::ranges::count(pieces, 4, &ParameterPiece::parameter), 2);
}

TEST(StateShards, ShardsAreRowsOfAllPieces) {
  const std::vector<ParameterSpec> specs = some_parameters();
  const auto pieces = parameter_pieces(specs, kSmallestCoded);
  std::int64_t all = 0;
  for (const ParameterPiece& piece : pieces) all += piece.elements;
  for (std::int64_t shards = 1; shards <= std::ssize(pieces); ++shards) {
    const auto cut = cut_shards(specs, shards, kSmallestCoded);
    ASSERT_EQ(std::ssize(cut), shards);
    std::vector<ParameterPiece> joined;
    for (const auto& shard : cut) {
      ASSERT_FALSE(shard.empty()) << shards;
      joined.insert(joined.end(), shard.begin(), shard.end());
      std::int64_t elements = 0;
      for (const ParameterPiece& piece : shard) elements += piece.elements;
      EXPECT_LE(elements, all / shards + 2 * kSmallestCoded) << shards;
    }
    EXPECT_EQ(joined, pieces) << shards;
  }
}

TEST(StateShards, FewerPiecesThanShards) {
  const auto cut = cut_shards(some_parameters(), 9);
  std::int64_t pieces = 0;
  for (const auto& shard : cut) {
    EXPECT_LE(shard.size(), 1u);
    pieces += std::ssize(shard);
  }
  EXPECT_EQ(pieces, 5);
  EXPECT_EQ(cut.size(), 9u);
}

TEST(StateShards, ListOfAShard) {
  const std::vector<ParameterSpec> specs = some_parameters();
  const StateShard shard =
      make_shard(specs, {{4, kSmallestCoded, 2 * kSmallestCoded}, {5, 0, 8192}});
  EXPECT_FALSE(shard.specs[0].trainable);
  EXPECT_FALSE(shard.specs[1].trainable);
  EXPECT_EQ(shard.first[4], kSmallestCoded);
  EXPECT_EQ(shard.elements(4), 2 * kSmallestCoded);
  EXPECT_EQ(shard.first[5], 0);
  EXPECT_EQ(shard.elements(5), 8192);
  EXPECT_EQ(shard.elements(2), 0);
  EXPECT_EQ(shard_of(specs, 1, 0).elements(5), specs[5].shape.elements());
}

}  // namespace
}  // namespace longstride
