// Sparse attention: a step's lists, losses and gradients against a plain reference, and the same
// bits however the step is run.
#include <gtest/gtest.h>

#include "base/thread_pool.h"
#include "tests/train/like_reference.h"
#include "tests/train/sparse_case.h"

namespace longstride {
namespace {

struct SparseOutcome : StepOutcome {
  std::vector<std::vector<std::vector<std::int64_t>>> lists;  // by layer, then query page
};

std::vector<std::vector<std::int64_t>> lists_of(const SelectedLists& selected, std::int64_t layer,
                                                const SequenceLayout& layout) {
  std::vector<std::vector<std::int64_t>> lists;
  for (std::int64_t chunk = 0; chunk < layout.chunks(); ++chunk)
    for (std::int64_t q = 0; q < layout.chunk_pages(chunk).size(); ++q) {
      std::vector<std::int64_t>& list = lists.emplace_back();
      for (const std::uint16_t i : selected.list(chunk, layer, q))
        list.push_back(selected.pages(chunk, layer)[i]);
    }
  return lists;
}

SparseOutcome run(Device& device, const SparseCase& c, const ParameterSet& weights,
                  std::int64_t keep_chunks, bool rebuild_feed_forward = false,
                  bool wavefront = true, std::int64_t longest = 0) {
  SparseOutcome out;
  out.gradients = std::make_unique<ParameterSet>(device, c.config, DType::kF32, "gradients");
  StepRunner runner =
      planned_runner(c.config, weights, *out.gradients,
                     choose_numerics(device, c.config, c.chunk, c.page, {.sparse = c.sparse}),
                     {.max_tokens = std::max(std::ssize(c.tokens), longest),
                      .keep_chunks = keep_chunks,
                      .within_episode = within_episode(rebuild_feed_forward),
                      .packed = c.document_starts.size() > 1,
                      .wavefront = wavefront});
  const auto counted = static_cast<double>(
      std::count_if(c.targets.begin(), c.targets.end(), [](std::int32_t t) { return t >= 0; }));
  runner.record_losses();
  // Twice: the first run must leave no state behind.
  for (int i = 0; i < 2; ++i) {
    out.gradients->zero();
    out.result = runner.run({c.tokens, c.targets, c.document_starts}, 1.0 / counted);
  }
  out.losses.assign(runner.losses().begin(), runner.losses().end());
  const SequenceLayout layout{static_cast<std::int64_t>(c.tokens.size()), c.chunk, c.page,
                              c.document_starts};
  for (std::int64_t l = 0; l < c.config.layers; ++l)
    out.lists.push_back(c.sparse.is_sparse(l) ? lists_of(runner.selected(), l, layout)
                                              : std::vector<std::vector<std::int64_t>>());
  EXPECT_EQ(runner.store().kv_pool().in_use(), 0);
  EXPECT_EQ(runner.store().gradient_pool().in_use(), 0);
  return out;
}

// Tensors of the selection are as large as the longest sequence needs them.
TEST(StepSparse, TheSameInARunnerForLongerSequences) {
  const auto device = make_cpu_device();
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    SCOPED_TRACE(seed);
    const SparseCase c = sparse_case(seed);
    const auto weights = gentle_weights(*device, c.config, seed);
    for (const std::int64_t keep_chunks : {1, 100}) {
      const SparseOutcome alone = run(*device, c, *weights, keep_chunks),
                          shorter = run(*device, c, *weights, keep_chunks, false, true,
                                        4 * std::ssize(c.tokens));
      EXPECT_TRUE(same_bits(*shorter.gradients, *alone.gradients));
      EXPECT_EQ(shorter.lists, alone.lists);
    }
  }
}

TEST(StepSparse, LikeTheReference) {
  const auto device = make_cpu_device();
  for (std::uint64_t seed = 0; seed < 24; ++seed) {
    SCOPED_TRACE(seed);
    const SparseCase c = sparse_case(seed);
    const auto weights = gentle_weights(*device, c.config, seed);
    const reference::SelectionProblem selection{c.sparse, c.chunk, c.page};
    const reference::Result expected =
        reference::run(c.config, *weights, c.tokens, c.targets, c.document_starts, 0, &selection);
    const SparseOutcome out = run(*device, c, *weights, c.keep_chunks);
    for (std::size_t l = 0; l < out.lists.size(); ++l) {
      ASSERT_EQ(out.lists[l].size(), expected.selected[l].size());
      for (std::size_t q = 0; q < out.lists[l].size(); ++q) {
        const auto& want = expected.selected[l][q];
        EXPECT_EQ(out.lists[l][q], std::vector<std::int64_t>(want.begin(), want.end()))
            << "layer " << l << " query page " << q;
      }
    }
    expect_like_reference(out, expected, 1e-5);
  }
}

TEST(StepSparse, ABudgetForAllPagesIsDense) {
  const auto device = make_cpu_device();
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    SparseCase c = sparse_case(seed);
    for (std::int64_t& window : c.config.windows) window = 0;
    for (std::int64_t& budget : c.sparse.budgets) budget = 1000;
    c.sparse.selection.union_pages = 1000;
    const auto weights = random_weights(*device, c.config, seed);
    expect_like_reference(
        run(*device, c, *weights, 1),
        reference::run(c.config, *weights, c.tokens, c.targets, c.document_starts), 1e-5);
  }
}

TEST(StepSparse, HoweverItRunsTheBitsAreTheSame) {
  const auto device = make_cpu_device();
  const int before = thread_count();
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    SCOPED_TRACE(seed);
    const SparseCase c = sparse_case(seed);
    const auto weights = random_weights(*device, c.config, seed);
    const SparseOutcome once = run(*device, c, *weights, 1);
    const auto expect_same = [&](const SparseOutcome& other) {
      EXPECT_EQ(other.losses, once.losses);
      EXPECT_EQ(other.lists, once.lists);
      EXPECT_TRUE(same_bits(*other.gradients, *once.gradients));
    };
    expect_same(run(*device, c, *weights, 3));
    expect_same(run(*device, c, *weights, 100));
    expect_same(run(*device, c, *weights, 2, true));
    expect_same(run(*device, c, *weights, 1, false, false));
    set_thread_count(3);
    expect_same(run(*device, c, *weights, 1));
    set_thread_count(before);
  }
}

}  // namespace
}  // namespace longstride
