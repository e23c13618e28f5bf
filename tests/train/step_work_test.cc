// The arithmetic of tasks, counted key by key; and the share of a step that is done.
#include "train/step_work.h"

#include <gtest/gtest.h>

#include <map>

#include "model/presets.h"
#include "tests/train/sparse_case.h"

namespace longstride {
namespace {

double as_double(std::int64_t n) { return static_cast<double>(n); }

struct Case {
  const char* name;
  std::vector<std::int64_t> windows, documents;
  SparseLayers sparse = {};
};

SparseLayers sparse_in(std::vector<std::int64_t> budgets) {
  SparseLayers sparse;
  sparse.budgets = std::move(budgets);
  sparse.selection.sinks = sparse.selection.recent = 0;
  sparse.selection.union_pages = 100;
  return sparse;
}

std::vector<Case> cases() {
  return {{"dense", {0, 0}, {0}},
          {"windows", {5, 40}, {0}},
          {"documents", {0, 20}, {0, 3, 30, 31, 100}},
          {"sparse", {0, 0}, {0}, sparse_in({2, SparseLayers::kNone})},
          {"sparse documents", {0, 0}, {0, 50, 70}, sparse_in({1, 0})}};
}

constexpr std::int64_t kTokens = 150, kChunk = 32, kPage = 16;

// Pairs of a query of the chunk and a key that it attends to.
double pairs(const SequenceLayout& layout, const Task& task, std::int64_t window,
             const SparseLayers& sparse) {
  double sum = 0;
  const std::int64_t begin = layout.chunk_begin(task.chunk);
  for (std::int64_t t = begin; t < begin + layout.chunk_size(task.chunk); ++t) {
    if (!task.sparse) {
      sum += as_double(t + 1 - layout.first_visible(t, window));
      continue;
    }
    const std::int64_t start = layout.document_start(t);
    sum += as_double(t + 1 - std::max(begin, start));
    const std::int64_t earlier = start < begin ? (begin - start) / kPage : 0;
    sum += as_double(kPage * std::min(earlier, sparse.budget(task.layer)));
  }
  return sum;
}

TEST(StepWork, CountsWhatTasksCompute) {
  ModelConfig m = find_preset("tiny-llama");
  const double D = as_double(m.hidden_size), F = as_double(m.ffn_size), V = as_double(m.vocabulary),
               Q = as_double(m.query_heads * m.head_size), K = as_double(m.kv_heads * m.head_size);
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    m.windows = c.windows;
    NumericsRecord numerics;
    numerics.chunk_tokens = kChunk;
    numerics.page_tokens = kPage;
    numerics.head_block_rows = 64;
    numerics.sparse = c.sparse;
    const SequenceLayout layout{kTokens, kChunk, kPage, c.documents};
    ScheduleOptions options;
    options.windows = c.windows;
    options.sparse = c.sparse;
    const StepSchedule schedule = make_step_schedule(layout, options);
    const StepWork work(m, numerics, layout);
    double all = 0;
    for (const Episode& episode : schedule.episodes)
      for (const Task& task : episode.tasks) {
        const double T = as_double(layout.chunk_size(task.chunk)), flops = work.flops(task);
        all += flops;
        if (task.kind == TaskKind::kHead) {
          EXPECT_DOUBLE_EQ(flops, 6 * T * D * V);
        }
        if (task.layer < 0) continue;
        const double attention =
            4 * Q * pairs(layout, task, c.windows[static_cast<std::size_t>(task.layer)], c.sparse);
        const double projections = 2 * T * D * (2 * Q + 2 * K + 3 * F);
        if (task.kind == TaskKind::kLayerBackward) {
          EXPECT_NEAR(flops, 2 * projections + 2.5 * attention, 1e-9 * flops)
              << task.chunk << " " << task.layer;
        }
        if (task.kind == TaskKind::kLayerForward && task.append && task.output && !task.selects) {
          EXPECT_NEAR(flops, projections + attention, 1e-9 * flops)
              << task.chunk << " " << task.layer;
        }
      }
    EXPECT_NEAR(work.flops(schedule), all, 1e-9 * all);
  }
}

// Shares of a phase, by chunk.
using Shares = std::map<std::pair<std::string, std::int64_t>, double>;

Shares shares_of(const RandomCase& c, const NumericsChoice& choice) {
  const std::unique_ptr<Device> device = make_cpu_device();
  const auto weights = gentle_weights(*device, c.config, 1);
  ParameterSet gradients(*device, c.config, DType::kF32, "gradients");
  StepRunner runner = planned_runner(c.config, *weights, gradients,
                                     choose_numerics(*device, c.config, c.chunk, c.page, choice),
                                     {std::ssize(c.tokens), c.keep_chunks});
  Shares shares;
  SequenceProgress last;
  bool first = true;
  const auto add = [&](double until) {
    EXPECT_GE(until, last.done);
    shares[{std::string(last.phase), last.chunk}] += until - last.done;
  };
  runner.run({c.tokens, c.targets, c.document_starts}, 1.0, nullptr,
             [&](const SequenceProgress& progress) {
               if (!std::exchange(first, false)) add(progress.done);
               last = progress;
             });
  EXPECT_LE(last.done, 1.0);
  add(1.0);
  return shares;
}

RandomCase long_case(std::vector<std::int64_t> windows) {
  RandomCase c;
  c.config = find_preset("tiny-llama");
  c.config.windows = std::move(windows);
  c.chunk = 64;
  c.page = 16;
  Random random(3, 4);
  fill_sequence(c, random, 64 * 8, 1, 0);
  return c;
}

TEST(StepWork, LaterChunksTakeALargerShare) {
  const Shares shares = shares_of(long_case({0, 0}), {});
  double sum = 0;
  for (const auto& [where, share] : shares) sum += share;
  EXPECT_NEAR(sum, 1, 1e-9);
  for (const char* phase : {"recompute", "backward"})
    for (std::int64_t chunk = 1; chunk < 7; ++chunk)
      EXPECT_GT(shares.at({phase, chunk}), shares.at({phase, chunk - 1})) << phase << chunk;
  for (std::int64_t chunk = 1; chunk < 7; ++chunk)
    EXPECT_GT(shares.at({"forward", chunk}), shares.at({"forward", chunk - 1})) << chunk;
}

// From where the window is full on, chunks cost the same.
TEST(StepWork, WindowsBoundTheShare) {
  const Shares shares = shares_of(long_case({20, 20}), {});
  for (const char* phase : {"forward", "recompute", "backward"})
    for (std::int64_t chunk = 2; chunk < 7; ++chunk)
      EXPECT_NEAR(shares.at({phase, chunk}), shares.at({phase, 1}), 1e-9) << phase << chunk;
}

// A budget of pages does so too; what grows is the scoring of pages, in the forward pass.
TEST(StepWork, BudgetsBoundTheShare) {
  NumericsChoice choice;
  choice.sparse = sparse_in({2, 2});
  choice.sparse.selection.summary_tokens = 16;
  const Shares shares = shares_of(long_case({0, 0}), choice);
  for (std::int64_t chunk = 2; chunk < 7; ++chunk) {
    EXPECT_NEAR(shares.at({"backward", chunk}), shares.at({"backward", 1}), 1e-9) << chunk;
    EXPECT_NEAR(shares.at({"recompute", chunk}), shares.at({"recompute", 1}), 1e-9) << chunk;
  }
}

}  // namespace
}  // namespace longstride
