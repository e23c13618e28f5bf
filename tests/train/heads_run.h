// Runs of a step by processes that share heads, each on a thread of its own, and what they must be
// like: one process, but for rounding, and the same bits in every run.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "comm/sub_link.h"
#include "comm/thread_link.h"
#include "model/page_selector.h"
#include "model/stage_parts.h"
#include "model/tied_head.h"
#include "plan/task_work.h"
#include "tests/train/step_fixture.h"
#include "tests/train/twin_ranks.h"
#include "train/linked_stages.h"
#include "train/run_plan.h"
#include "train/shared_heads.h"
#include "train/tied_stages.h"

namespace longstride {

using ByName = std::map<std::string, std::vector<float>>;
// By layer of the model and chunk: the pages of every query page's list.
using ListsByChunk =
    std::map<std::pair<std::int64_t, std::int64_t>, std::vector<std::vector<std::int64_t>>>;

struct HeadsOutcome {
  ByName gradients;  // summed in the order of ranks
  double loss = 0;
  std::int64_t targets = 0, correct = 0;
  std::vector<float> losses;
  std::vector<std::int64_t> sent;  // by rank
  double counted = 0;              // of it by rank 0, by the cost model
  ListsByChunk lists;              // of sparse layers
  SelectionCounts selection;       // of the stages together
  std::int64_t moved = 0;          // bytes of pages that came back to the device
};

struct HeadsSetting {
  std::int64_t heads = 2, stages = 1;
  std::int64_t chunk = 32, page = 16, keep_chunks = 1;
  bool evaluate = false, rebuild = false, recompute = true, wavefront = true;
  SparseLayers sparse = {};
  bool host_pages = false;  // the device has room for as few pages as can be
  bool direct = false;      // by NCCL's twin, in device memory
};

inline RandomCase heads_case(std::uint64_t seed, std::int64_t tokens, std::int64_t kv_heads) {
  Random random(seed, 14);
  RandomCase c;
  c.config = random_config(random);
  c.config.layers = 3;
  c.config.windows = {0, 20, 0};
  c.config.kv_heads = kv_heads;
  c.config.query_heads = kv_heads * (1 + static_cast<std::int64_t>(random.below(2)));
  vary_family(c.config, seed);
  fill_sequence(c, random, tokens, 1 + random.below(3), 5);
  return c;
}

inline void fill_from(const ParameterSet& all, ParameterSet& mine) {
  for (std::int64_t i = 0; i < mine.size(); ++i)
    for (std::int64_t j = 0; j < all.size(); ++j)
      if (all.specs()[static_cast<std::size_t>(j)].name ==
          mine.specs()[static_cast<std::size_t>(i)].name)
        std::copy_n(all.view(j).as<float>(), mine.view(i).elements(), mine.view(i).as<float>());
}

inline StageParts parts_of(const RandomCase& c, const HeadsSetting& s, const RankPlace& place,
                           Device& device) {
  std::vector<ParameterSpec> specs = parameter_specs(c.config);
  sum_head_apart(specs);
  NumericsChoice choice;
  choice.tied_apart = sums_head_apart(specs);
  choice.sparse = s.sparse;
  const NumericsRecord numerics = choose_numerics(device, c.config, s.chunk, s.page, choice);
  const std::int64_t each = (c.config.layers + s.stages - 1) / s.stages;
  StageParts parts = stage_parts(c.config, specs, numerics, place.stage * each,
                                 std::min(c.config.layers, (place.stage + 1) * each));
  parts.stage.heads.ranks = s.heads;
  return parts;
}

inline double count_sent(const StageParts& parts, const StepPlan& plan) {
  const SequenceLayout layout = plan.layout();
  const StepSchedule schedule = make_step_schedule(layout, plan.schedule);
  const TaskCounter counter(parts.config, parts.numerics, layout, plan.trained,
                            plan.schedule.stage.heads);
  double bytes = 0;
  for (const Episode& episode : schedule.episodes)
    for (const Task& task : episode.tasks) bytes += counter.count(task).bytes_sent;
  return bytes;
}

// Those of another process that shares the heads must be the same.
inline void add_lists(const StageParts& parts, const StepRunner& runner,
                      const SequenceLayout& layout, ListsByChunk& all) {
  for (std::int64_t layer = 0; layer < parts.config.layers; ++layer)
    for (std::int64_t chunk = 0; chunk < layout.chunks(); ++chunk) {
      if (!parts.numerics.sparse.is_sparse(layer)) continue;
      std::vector<std::vector<std::int64_t>> lists;
      for (std::int64_t q = 0; q < layout.chunk_pages(chunk).size(); ++q) {
        std::vector<std::int64_t>& list = lists.emplace_back();
        for (const std::uint16_t i : runner.selected().list(chunk, layer, q))
          list.push_back(runner.selected().pages(chunk, layer)[i]);
      }
      const auto [at, is_new] =
          all.emplace(std::pair(parts.stage.first_layer + layer, chunk), lists);
      EXPECT_TRUE(is_new || at->second == lists) << "layer " << layer << ", chunk " << chunk;
    }
}

inline HeadsOutcome run_heads(const RandomCase& c, const ParameterSet& weights,
                              const HeadsSetting& s) {
  const int ranks = static_cast<int>(s.heads * s.stages);
  std::vector<ByName> gradients(static_cast<std::size_t>(ranks));
  std::vector<SequenceResult> results(gradients.size());
  HeadsOutcome all;
  all.sent.resize(gradients.size());
  all.losses.resize(c.tokens.size());
  std::mutex mutex;
  const auto run_rank = [&](comm::Link& link) {
    const auto rank = static_cast<std::size_t>(link.rank());
    const RankPlace place = RankPlace::of_rank(link.rank(), ranks, s.stages, s.heads);
    std::vector<int> stages, heads;
    for (std::int64_t i = 0; i < s.stages; ++i)
      stages.push_back(static_cast<int>(place.rank_of(place.shard, i)));
    for (std::int64_t i = 0; i < s.heads; ++i)
      heads.push_back(static_cast<int>(place.rank_of(i, place.stage)));
    comm::SubLink stage_link(link, stages), head_link(link, heads);
    const auto device = make_cpu_device();
    const StageParts parts = parts_of(c, s, place, *device);
    ParameterSet mine(*device, parts.parameters, "weights");
    fill_from(weights, mine);
    ParameterSet sums = ParameterSet::gradients(*device, parts.parameters);
    StepOptions options{.max_tokens = std::ssize(c.tokens),
                        .keep_chunks = s.keep_chunks,
                        .within_episode = within_episode(s.rebuild),
                        .packed = c.document_starts.size() > 1,
                        .wavefront = s.wavefront,
                        .evaluates = s.evaluate,
                        .stage = parts.stage};
    if (!s.recompute)
      options.across_episodes.assign(static_cast<std::size_t>((options.max_tokens + s.chunk - 1) /
                                                              s.chunk * parts.config.layers),
                                     Retention::all());
    if (s.host_pages)
      options.pages = {StepPlanner(*device, parts.config, parts.parameters, parts.numerics, options)
                           .least_page_bytes(),
                       PageBudget::kAll};
    StepPlan plan = plan_step(*device, parts.config, parts.parameters, parts.numerics, options);
    if (link.rank() == 0) all.counted = count_sent(parts, plan);
    const std::int64_t rows = parts.stage.heads.most_rows(s.chunk),
                       planned = plan.memory.total() + plan.memory.host(),
                       before = device->allocated_bytes();
    LinkedStages neighbours(*device, stage_link, rows * c.config.hidden_size * 4);
    const HeadRoom room{
        rows * c.config.query_heads * c.config.head_size * 4,
        s.heads * PageSelector::most_score_bytes({options.max_tokens, s.chunk, s.page})};
    const std::int64_t without = device->allocated_bytes();
    const auto exchange = make_head_exchange(*device, head_link, room, s.direct);
    const PortBytes taken = head_exchange_bytes(room, s.direct);
    EXPECT_EQ(device->allocated_bytes() - without, taken.host + taken.device);
    TiedStages tied(*device, stage_link, parts.parameters);
    const std::int64_t others = device->allocated_bytes() - before;
    StepRunner runner(parts.config, mine, sums, parts.numerics, std::move(plan), nullptr,
                      s.stages > 1 ? &neighbours : nullptr, s.heads > 1 ? exchange.get() : nullptr);
    EXPECT_EQ(device->allocated_bytes() - before - others, planned);
    runner.record_losses();
    SequenceInput input{c.tokens, c.targets, c.document_starts};
    const SequenceResult result = s.evaluate ? runner.evaluate(input) : runner.run(input, 1.0 / 64);
    neighbours.finish();
    if (s.stages > 1)
      tied.fold(sums);
    else
      add_head_gradient(sums);
    const std::scoped_lock lock(mutex);
    for (std::int64_t i = 0; i < sums.size(); ++i)
      if (const View view = sums.view(i); view.present())
        gradients[rank].emplace(
            sums.specs()[static_cast<std::size_t>(i)].name,
            std::vector<float>(view.as<float>(), view.as<float>() + view.elements()));
    all.sent[rank] = link.counters().tensors_sent();
    add_lists(parts, runner, {options.max_tokens, s.chunk, s.page}, all.lists);
    if (place.shard == 0) all.selection += result.selection;
    all.moved += result.moved.in;
    if (parts.stage.sends) return;
    results[rank] = result;
    for (std::size_t t = 0; t < all.losses.size(); ++t) all.losses[t] += runner.losses()[t];
  };
  if (s.direct) {
    comm::run_twin_ranks(ranks, run_rank);
  } else {
    comm::ThreadHub hub(ranks);
    for (const std::exception_ptr& failure :
         comm::run_thread_ranks(hub, {}, [&](comm::MessageLink& link) { run_rank(link); }))
      if (failure) std::rethrow_exception(failure);
  }
  for (const SequenceResult& one : results) {
    all.loss += one.loss_sum;
    all.targets += one.targets;
    all.correct += one.correct;
  }
  for (const ByName& of_rank : gradients)
    for (const auto& [name, values] : of_rank) {
      std::vector<float>& sum = all.gradients[name];
      sum.resize(values.size());
      for (std::size_t i = 0; i < values.size(); ++i) sum[i] += values[i];
    }
  return all;
}

inline void expect_close(const RandomCase& c, const HeadsSetting& s, std::uint64_t seed,
                         const ParameterSet* some_weights = nullptr) {
  const auto device = make_cpu_device();
  const auto random = random_weights(*device, c.config, seed);
  const ParameterSet* weights = some_weights != nullptr ? some_weights : random.get();
  HeadsSetting alone = s;
  alone.host_pages = false;
  alone.heads = alone.stages = 1;
  const HeadsOutcome one = run_heads(c, *weights, alone), several = run_heads(c, *weights, s),
                     again = run_heads(c, *weights, s);
  EXPECT_EQ(several.targets, one.targets);
  EXPECT_EQ(several.correct, one.correct);
  EXPECT_NEAR(several.loss, one.loss, 1e-5 * std::abs(one.loss));
  EXPECT_LT(relative_error(several.losses.data(), one.losses.data(), std::ssize(one.losses)), 1e-5);
  ASSERT_EQ(several.gradients.size(), one.gradients.size());
  // As in like_reference.h: a gradient that all but cancels out (that of a norm, say) is a sum of
  // rounding errors on some CPUs, so a tenth of the bound is relative to the whole gradient.
  const auto norm = [](const std::vector<float>& v) {
    double squares = 0;
    for (const float x : v) squares += static_cast<double>(x) * static_cast<double>(x);
    return std::sqrt(squares);
  };
  double whole = 0;
  for (const auto& [name, values] : one.gradients) whole = std::hypot(whole, norm(values));
  for (const auto& [name, values] : one.gradients) {
    const double error =
        relative_error(several.gradients.at(name).data(), values.data(), std::ssize(values));
    EXPECT_LE(error * norm(values), 1e-5 * norm(values) + 1e-6 * whole)
        << name << ", seed " << seed;
  }
  EXPECT_TRUE(several.gradients == again.gradients && several.losses == again.losses);
  EXPECT_EQ(several.lists, one.lists);
  EXPECT_EQ(several.selection.unions, one.selection.unions);
  EXPECT_EQ(several.selection.visits, one.selection.visits);
  EXPECT_TRUE(!s.host_pages || several.moved > 0);
}

}  // namespace longstride
