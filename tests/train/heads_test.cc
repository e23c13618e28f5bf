// Processes that share heads, each on a thread of its own: gradients and losses of one process, but
// for rounding, and the same bits in every run.
#include <gtest/gtest.h>

#include "tests/train/heads_run.h"

namespace longstride {
namespace {

TEST(Heads, GiveTheGradientsOfOneProcess) {
  for (std::uint64_t seed = 0; seed < 6; ++seed)
    expect_close(heads_case(seed, 170, 2),
                 {.keep_chunks = 1 + static_cast<std::int64_t>(seed % 3), .rebuild = seed % 2 == 1},
                 seed);
}

// Slices of unequal sizes, and a last chunk of one token, of which the others have none.
TEST(Heads, ChunksNeedNotBeDivisible) {
  expect_close(heads_case(7, 161, 3), {.heads = 3}, 7);
  expect_close(heads_case(8, 161, 3), {.heads = 3, .stages = 3, .keep_chunks = 2}, 8);
  expect_close(heads_case(9, 1, 2), {}, 9);
}

TEST(Heads, StagesShareThemToo) {
  for (std::uint64_t seed = 10; seed < 13; ++seed)
    expect_close(heads_case(seed, 130, 2), {.stages = 2}, seed);
}

TEST(Heads, ActivationsMayStay) { expect_close(heads_case(14, 170, 2), {.recompute = false}, 14); }

TEST(Heads, EvaluateToTheSameLosses) {
  expect_close(heads_case(15, 130, 2), {.evaluate = true}, 15);
}

// q, k, v and outputs forward, and q, outputs, their gradient, dq, dk and dv in the backward pass.
TEST(Heads, SendWhatAttentionNeeds) {
  const RandomCase c = heads_case(16, 64, 4);
  const auto device = make_cpu_device();
  const auto weights = random_weights(*device, c.config, 16);
  for (const std::int64_t heads : {2, 4}) {
    const HeadsOutcome all = run_heads(c, *weights, {.heads = heads, .chunk = 64});
    const std::int64_t columns =
                           (6 * c.config.query_heads + 4 * c.config.kv_heads) * c.config.head_size,
                       bytes = c.config.layers * columns * 64 * (heads - 1) / heads / heads * 4;
    for (const std::int64_t sent : all.sent) EXPECT_EQ(sent, bytes) << heads;
  }
}

// Also what is sent again by recomputation, and by slices that are not equally long.
TEST(Heads, CostsCountWhatIsSent) {
  for (const HeadsSetting& s : std::vector<HeadsSetting>{
           {}, {.keep_chunks = 3}, {.heads = 3}, {.heads = 3, .recompute = false}}) {
    RandomCase c = heads_case(17, 161, 3 * 2);
    Random random(18, 14);
    fill_sequence(c, random, 161, 1, 5);
    const auto device = make_cpu_device();
    const auto weights = random_weights(*device, c.config, 17);
    const HeadsOutcome all = run_heads(c, *weights, s);
    EXPECT_GT(all.counted, 0);
    EXPECT_NEAR(all.counted, static_cast<double>(all.sent.front()), 1e-6 * all.counted)
        << s.heads << " " << s.keep_chunks << " " << s.recompute;
  }
}

TEST(Heads, SlicesFollowEachOther) {
  for (std::int64_t ranks = 1; ranks <= 5; ++ranks)
    for (std::int64_t T = 1; T < 20; ++T) {
      std::int64_t next = 0;
      for (std::int64_t rank = 0; rank < ranks; ++rank) {
        const TokenSlice slice = HeadShare{ranks, rank}.slice(T);
        EXPECT_EQ(slice.begin, slice.tokens > 0 ? next : T - 1);
        EXPECT_LT(slice.begin, T);
        EXPECT_EQ(slice.rows, std::max<std::int64_t>(1, slice.tokens));
        EXPECT_LE(slice.rows, HeadShare{ranks}.most_rows(T));
        // A trace of full chunks holds shorter ones.
        EXPECT_LE(slice.rows, (HeadShare{ranks, rank}.rows(T + 1)));
        next += slice.tokens;
      }
      EXPECT_EQ(next, T);
    }
}

TEST(Heads, RanksAreNeighbours) {
  for (std::int64_t rank = 0; rank < 12; ++rank) {
    const RankPlace place = RankPlace::of_rank(rank, 12, 3, 2);
    EXPECT_EQ(place.rank(), rank);
    EXPECT_EQ(place.shards, 4);
    EXPECT_EQ(place.pipelines(), 2);
    EXPECT_EQ(place.pipeline(), rank / 6);
    EXPECT_EQ(place.stage, rank % 6 / 2);
    EXPECT_EQ(place.head_share(), (HeadShare{2, rank % 2}));
  }
}

}  // namespace
}  // namespace longstride
