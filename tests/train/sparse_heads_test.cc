// Sparse layers of processes that share heads: each scores pages with its heads, and all select the
// same pages as one process.
#include <gtest/gtest.h>

#include "plan/task_work.h"
#include "tests/train/heads_run.h"
#include "tests/train/sparse_case.h"

namespace longstride {
namespace {

constexpr std::int64_t kSparsePage = 16;

// The second of three layers is dense.
HeadsSetting sparse_setting(std::uint64_t seed, Scoring scoring) {
  HeadsSetting s{.chunk = kSparsePage * (1 + static_cast<std::int64_t>(seed % 3)),
                 .page = kSparsePage,
                 .keep_chunks = 1 + static_cast<std::int64_t>(seed % 2)};
  s.sparse.selection = {.sinks = 1,
                        .recent = static_cast<std::int64_t>(seed % 2),
                        .union_pages = 7,
                        .summary_tokens = seed % 2 == 0 ? kSparsePage : kSparsePage / 4,
                        .summary = seed % 4 == 3 ? Summary::kOutliers : Summary::kMeans,
                        .scoring = scoring};
  s.sparse.budgets = {4, SparseLayers::kNone, 3};
  return s;
}

void expect_like_one(std::uint64_t seed, std::int64_t tokens, std::int64_t kv_heads,
                     const HeadsSetting& s) {
  SCOPED_TRACE(seed);
  const RandomCase c = heads_case(seed, tokens, kv_heads);
  const auto device = make_cpu_device();
  const auto weights = gentle_weights(*device, c.config, seed);
  expect_close(c, s, seed, weights.get());
}

constexpr Scoring kScorings[] = {Scoring::kMass, Scoring::kFocus, Scoring::kOomb};

// One or several documents (heads_case), any family, some with chunks that end within a page.
TEST(SparseHeads, SelectThePagesOfOneProcess) {
  for (const Scoring scoring : kScorings)
    for (std::uint64_t seed = 20; seed < 25; ++seed)
      expect_like_one(seed, 200 + static_cast<std::int64_t>(seed), 2,
                      sparse_setting(seed, scoring));
}

TEST(SparseHeads, ThreeAndFourProcesses) {
  for (const Scoring scoring : kScorings) {
    HeadsSetting s = sparse_setting(30, scoring);
    s.heads = 3;
    expect_like_one(30, 241, 3, s);  // the last chunk has one token
    s.heads = 4;
    expect_like_one(31, 260, 4, s);
    expect_like_one(32, 260, 8, s);
  }
}

TEST(SparseHeads, StagesShareThemToo) {
  for (std::uint64_t seed = 33; seed < 36; ++seed) {
    HeadsSetting s = sparse_setting(seed, Scoring::kFocus);
    s.stages = 3;
    expect_like_one(seed, 230, 2, s);
  }
}

TEST(SparseHeads, PagesInHostMemory) {
  for (std::uint64_t seed = 36; seed < 39; ++seed) {
    HeadsSetting s = sparse_setting(seed, kScorings[seed % 3]);
    s.host_pages = true;
    expect_like_one(seed, 260, 2, s);
  }
}

// Activations stay, layer by layer, without a backward pass.
TEST(SparseHeads, HoweverTheyRun) {
  HeadsSetting s = sparse_setting(40, Scoring::kFocus);
  s.recompute = false;
  expect_like_one(40, 220, 2, s);
  s = sparse_setting(41, Scoring::kFocus);
  s.wavefront = false;
  expect_like_one(41, 220, 2, s);
  s = sparse_setting(42, Scoring::kFocus);
  s.evaluate = true;
  expect_like_one(42, 220, 2, s);
}

// As the planner counts it, of chunks of whole pages.
TEST(SparseHeads, DivideTheWork) {
  const RandomCase c = heads_case(44, 192, 4);
  const auto device = make_cpu_device();
  for (const Scoring scoring : kScorings) {
    const HeadsSetting s = sparse_setting(44, scoring);
    NumericsChoice choice;
    choice.sparse = s.sparse;
    const NumericsRecord numerics =
        choose_numerics(*device, c.config, 3 * kSparsePage, kSparsePage, choice);
    const SequenceLayout layout{192, 3 * kSparsePage, kSparsePage};
    const StepSchedule schedule = make_step_schedule(
        layout, schedule_options(*device, c.config, numerics, {.max_tokens = 192}));
    const TrainedParts trained = trained_parts(parameter_specs(c.config), c.config.layers);
    const TaskCounter one(c.config, numerics, layout, trained),
        quarter(c.config, numerics, layout, trained, HeadShare{4, 0});
    double scored = 0, selected = 0;
    for (const Episode& episode : schedule.episodes)
      for (const Task& task : episode.tasks) {
        if (!task.sparse) continue;
        const TaskWork all = one.count(task), mine = quarter.count(task);
        EXPECT_DOUBLE_EQ(mine.score_flops, all.score_flops / 4);
        EXPECT_DOUBLE_EQ(mine.attention.selected_flops, all.attention.selected_flops / 4);
        EXPECT_DOUBLE_EQ(mine.memory, all.memory / 4);
        scored += all.score_flops;
        selected += all.attention.selected_flops;
      }
    EXPECT_GT(scored, 0);
    EXPECT_GT(selected, 0);
  }
}

// A chunk's scores for all earlier pages go to every other process; the rest is as in dense layers.
TEST(SparseHeads, SendTheirScores) {
  const RandomCase c = [] {
    RandomCase made = heads_case(43, 192, 4);
    made.document_starts = {0};
    return made;
  }();
  const auto device = make_cpu_device();
  const auto weights = random_weights(*device, c.config, 43);
  for (const std::int64_t heads : {2, 4}) {
    HeadsSetting s = sparse_setting(43, Scoring::kFocus);
    s.heads = heads;
    s.chunk = 48;
    s.keep_chunks = 4;  // all: nothing is sent twice
    const std::int64_t columns =
        (6 * c.config.query_heads + 4 * c.config.kv_heads) * c.config.head_size;
    std::int64_t bytes = c.config.layers * columns * 192 * (heads - 1) / heads / heads * 4;
    for (std::int64_t chunk = 1; chunk < 4; ++chunk)
      bytes += 2 * (heads - 1) * 3 * (3 * chunk) * 4;  // two layers, three pages of queries
    const HeadsOutcome all = run_heads(c, *weights, s);
    for (const std::int64_t sent : all.sent) EXPECT_EQ(sent, bytes) << heads;
    EXPECT_NEAR(all.counted, static_cast<double>(bytes), 1e-6 * all.counted) << heads;
    s.keep_chunks = 1;  // some is sent again
    const HeadsOutcome again = run_heads(c, *weights, s);
    EXPECT_GT(again.sent.front(), bytes);
    EXPECT_NEAR(again.counted, static_cast<double>(again.sent.front()), 1e-6 * again.counted)
        << heads;
  }
}

}  // namespace
}  // namespace longstride
