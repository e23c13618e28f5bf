// What processes that share heads send each other: the right elements in the right places, through
// host memory and, over NCCL's strict twin, in device memory; a step has the same bits either way.
#include "train/shared_heads.h"

#include <gtest/gtest.h>

#include "tests/train/heads_run.h"
#include "tests/train/sparse_case.h"

namespace longstride {
namespace {

constexpr std::int64_t kSharedHeadSize = 3;

float shared_element(std::int64_t token, std::int64_t head, std::int64_t c) {
  return static_cast<float>((token * 16 + head) * 8 + c);
}

// [tokens, heads, kSharedHeadSize] of a whole tensor.
std::vector<float> shared_part(std::int64_t first_token, std::int64_t tokens,
                               std::int64_t first_head, std::int64_t heads) {
  std::vector<float> values;
  for (std::int64_t t = first_token; t < first_token + tokens; ++t)
    for (std::int64_t h = first_head; h < first_head + heads; ++h)
      for (std::int64_t c = 0; c < kSharedHeadSize; ++c) values.push_back(shared_element(t, h, c));
  return values;
}

void exchange_all(comm::Link& link, bool direct) {
  const auto device = make_cpu_device();
  const HeadShare share{link.size(), link.rank()};
  constexpr std::int64_t kMostTokens = 21, kHeads = 2;  // of a process
  const HeadRoom room{share.most_rows(kMostTokens) * share.ranks * kHeads * kSharedHeadSize * 4,
                      share.ranks * 5 * 4};
  const auto exchange = make_head_exchange(*device, link, room, direct);
  EXPECT_EQ(exchange->share(), share);
  for (const std::int64_t T : {kMostTokens, std::int64_t{1}, std::int64_t{2}, std::int64_t{8}}) {
    const TokenSlice slice = share.slice(T);
    const std::int64_t all_heads = share.ranks * kHeads;
    std::vector<float> x = shared_part(slice.begin, slice.rows, 0, all_heads),
                       y(static_cast<std::size_t>(T * kHeads * kSharedHeadSize), -1.0f);
    const View x_SHC(x.data(), DType::kF32, {slice.rows, all_heads, kSharedHeadSize}),
        y_TGC(y.data(), DType::kF32, {T, kHeads, kSharedHeadSize});
    exchange->to_heads(x_SHC, y_TGC);
    EXPECT_EQ(y, shared_part(0, T, share.rank * kHeads, kHeads)) << T << " tokens";
    std::vector<float> expected = x;
    if (slice.tokens == 0) std::ranges::fill(expected, 0.0f);
    std::ranges::fill(x, -1.0f);
    exchange->to_tokens(y_TGC, x_SHC);
    EXPECT_EQ(x, expected) << T << " tokens";
    std::vector<float> mine(5, static_cast<float>(share.rank + T)), all(5 * link.size(), -1.0f);
    exchange->gather({mine.data(), DType::kF32, {5}}, {all.data(), DType::kF32, {share.ranks, 5}});
    for (std::size_t i = 0; i < all.size(); ++i)
      EXPECT_EQ(all[i], static_cast<float>(static_cast<std::int64_t>(i / 5) + T));
  }
}

TEST(SharedHeads, ExchangeThroughHostMemory) {
  for (const int ranks : {2, 3, 4}) {
    comm::ThreadHub hub(ranks);
    for (const std::exception_ptr& failure : comm::run_thread_ranks(
             hub, {}, [](comm::MessageLink& link) { exchange_all(link, false); }))
      EXPECT_EQ(failure, nullptr);
  }
}

TEST(SharedHeads, ExchangeInDeviceMemory) {
  for (const int ranks : {2, 3, 4})
    comm::run_twin_ranks(ranks, [](comm::Link& link) { exchange_all(link, true); });
}

void expect_same_either_way(const RandomCase& c, HeadsSetting s, std::uint64_t seed) {
  const auto device = make_cpu_device();
  const auto weights = gentle_weights(*device, c.config, seed);
  const HeadsOutcome by_host = run_heads(c, *weights, s);
  s.direct = true;
  const HeadsOutcome direct = run_heads(c, *weights, s);
  EXPECT_TRUE(direct.gradients == by_host.gradients && direct.losses == by_host.losses) << seed;
  EXPECT_EQ(direct.lists, by_host.lists);
  EXPECT_EQ(direct.sent, by_host.sent);
}

TEST(SharedHeads, AStepHasTheSameBits) {
  expect_same_either_way(heads_case(50, 170, 2), {}, 50);
  expect_same_either_way(heads_case(51, 161, 3), {.heads = 3, .keep_chunks = 2}, 51);
  HeadsSetting sparse{.heads = 4};
  sparse.sparse = {.selection = {.sinks = 1, .recent = 1, .union_pages = 6, .summary_tokens = 8},
                   .budgets = {4, SparseLayers::kNone, 3}};
  expect_same_either_way(heads_case(52, 240, 4), sparse, 52);
}

}  // namespace
}  // namespace longstride
