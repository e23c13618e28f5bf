// Invariant 7 for the selection of pages: keys and summaries of more than 2^31 elements.
//   T queries   K heads   C head size   P tokens of a page   N pages
#include "ops/elementwise.h"
#include "ops/page_selection.h"
#include "tests/cuda/gpu_fixture.h"

namespace longstride::ops {
namespace {

constexpr std::int64_t kLimit = std::int64_t{1} << 31;
constexpr std::int64_t kT = 128, kK = 8, kC = 128, kP = 128;

class LargeSelection : public OnGpu {};

TEST_F(LargeSelection, MeansOfKeysPast2To31) {
  const std::int64_t page_elements = kP * 2 * kK * kC, pages = kLimit / page_elements + 2;
  const View pool = make(DType::kBF16, {pages, page_elements});
  const View last = random(DType::kBF16, {1, page_elements});
  convert(stream(), {last, pool.rows(pages - 1, 1)});
  EXPECT_GT(pool.elements(), kLimit);
  const auto means_of = [&](const View& memory, std::int32_t slot) {
    const std::int32_t first_row = 0;
    const View means = make(DType::kBF16, {4, kK, kC});
    summarize_pages(stream(), {.kv = {static_cast<std::byte*>(memory.data()), &slot,
                                      page_elements * 2, kP, kK, kC, DType::kBF16},
                               .first_page = 0,
                               .pages = 1,
                               .means = 4,
                               .first_row = &first_row,
                               .summaries_MKC = means});
    return bytes(means);
  };
  EXPECT_EQ(means_of(pool, static_cast<std::int32_t>(pages - 1)), means_of(last, 0));
}

// All means are zero but one beyond 2^31 elements, which is the queries' direction: it gets nearly
// all the weight, and is chosen.
TEST_F(LargeSelection, SummariesPast2To31) {
  const std::int64_t N = kLimit / (kK * kC) + 64, found = N - 3;
  for (const DType t : {DType::kBF16, DType::kF32}) {
    const View q = make(t, {kT, kK, kC}), summaries = make(t, {N, kK, kC});
    EXPECT_GT(summaries.elements(), kLimit);
    std::vector<float> ones(static_cast<std::size_t>(kT * kK * kC), 1.0f);
    const View some = make(DType::kF32, q.shape());
    gpu().copy_from_host(some.data(), ones.data(), some.bytes());
    convert(stream(), {some, q});
    convert(stream(), {some.rows(0, 1), summaries.rows(found, 1)});
    PageScores scores{.q_THC = q,
                      .summaries_MKC = summaries,
                      .seen = {0, kT},
                      .chunk_begin = N * kP,
                      .page_tokens = kP,
                      .scale = 0.5f};
    scores.scores_QN = make(DType::kF32, {1, N});
    scores.scratch =
        make(DType::kF32, {page_scores_scratch_elements(stream(), {.tokens = kT,
                                                                   .query_heads = kK,
                                                                   .kv_heads = kK,
                                                                   .head_size = kC,
                                                                   .page_tokens = kP})});
    page_scores(stream(), scores);
    const std::vector<std::byte> got = bytes(scores.scores_QN);
    const auto* const weights = reinterpret_cast<const float*>(got.data());
    EXPECT_NEAR(weights[found], kT * kK, 0.01);
    EXPECT_NEAR(weights[0], 0, 1e-6);
    EXPECT_NEAR(weights[found + 1], 0, 1e-6);

    const View list = make(DType::kI32, {1, 3}), joined = make(DType::kI32, {8});
    choose_pages(stream(), {.scores_QN = scores.scores_QN,
                            .query_pages = 1,
                            .candidates = N,
                            .budget = 3,
                            .sinks = 1,
                            .recent = 1,
                            .union_pages = 8,
                            .sums_N = make(DType::kF32, {N}),
                            .union_U = joined,
                            .lists_QB = list});
    const std::vector<std::byte> chosen = bytes(list);
    const auto* const page = reinterpret_cast<const std::int32_t*>(chosen.data());
    EXPECT_EQ(page[0], 0);
    EXPECT_EQ(page[1], found);
    EXPECT_EQ(page[2], N - 1);
  }
}

}  // namespace
}  // namespace longstride::ops
