#include "schedule/step_schedule.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "base/error.h"
#include "tests/schedule/random_layout.h"

namespace longstride {
namespace {

using testing::pick;
using testing::random_layout;
using testing::random_window;

using Pages = std::set<std::pair<std::int64_t, std::int64_t>>;  // (layer, page)

// Simulates a schedule on plain sets, page by page, and checks each task against what exists at
// that time.
class Simulator {
 public:
  Simulator(const SequenceLayout& layout, const ScheduleOptions& options)
      : layout_(layout),
        options_(options),
        layers_(static_cast<std::int64_t>(options.windows.size())) {}

  void run(const StepSchedule& schedule) {
    for (const Episode& episode : schedule.episodes) {
      std::set<std::int64_t> chunks;
      for (const Task& task : episode.tasks) {
        chunks.insert(task.chunk);
        if (task.kind == TaskKind::kEmbed && task.output) stream_ = {task.chunk, 0};
        if (task.kind == TaskKind::kLayerForward) forward(task);
        if (task.kind == TaskKind::kLayerBackward) backward(task);
        fetch(task);
      }
      ASSERT_EQ(static_cast<std::int64_t>(chunks.size()), episode.chunks);
      for (const auto& [place, held] : held_)
        ASSERT_TRUE(lasting_[place].has(held))
            << "an episode ends with activations in its workspace";
      held_.clear();
    }
    const std::int64_t all = layout_.chunks() * layers_;
    EXPECT_EQ(static_cast<std::int64_t>(appended_.size()), all);
    ASSERT_EQ(static_cast<std::int64_t>(backward_.size()), all);
    // Chunks in reverse, and each chunk's layers in reverse.
    EXPECT_TRUE(std::is_sorted(backward_.rbegin(), backward_.rend()));
    EXPECT_TRUE(kv_.empty());
    EXPECT_TRUE(gradients_.empty());
    for (const auto& [place, left] : lasting_) EXPECT_TRUE(left.empty());
    for (const auto& [place, left] : saved_) EXPECT_TRUE(left.empty());
    EXPECT_EQ(schedule.peak_kv_pages, peak_kv_);
    EXPECT_EQ(schedule.peak_gradient_pages, peak_gradients_);
  }

 private:
  using Place = std::pair<std::int64_t, std::int64_t>;  // (chunk, layer)

  // The pages that the queries of the chunk see, token by token.
  std::set<std::int64_t> seen_pages(const Task& task) const {
    std::set<std::int64_t> pages;
    const std::int64_t begin = layout_.chunk_begin(task.chunk);
    for (std::int64_t t = begin; t < begin + layout_.chunk_size(task.chunk); ++t)
      for (std::int64_t s =
               layout_.first_visible(t, options_.windows[static_cast<std::size_t>(task.layer)]);
           s <= t; ++s)
        pages.insert(s / layout_.page_tokens);
    return pages;
  }

  void expect_visits(const Task& task) {
    std::set<std::int64_t> visited;
    for (std::int64_t p = task.visited.hull().begin; p < task.visited.hull().end; ++p) {
      if (!task.visited.contains(p)) continue;
      visited.insert(p);
      EXPECT_TRUE(kv_.contains({task.layer, p})) << "page " << p << " is visited but not there";
    }
    EXPECT_EQ(visited, seen_pages(task));
  }

  void forward(const Task& task) {
    const Place place{task.chunk, task.layer};
    if (task.append) {
      EXPECT_TRUE(appended_.insert(place).second) << "appended twice";
      EXPECT_EQ(task.appended, layout_.chunk_pages(task.chunk));
      for (std::int64_t p = task.appended.begin; p < task.appended.end; ++p)
        EXPECT_TRUE(kv_.insert({task.layer, p}).second) << "page " << p << " exists already";
    } else {
      EXPECT_TRUE(appended_.contains(place)) << "recomputed before its first time";
      EXPECT_EQ(task.appended.size(), 0);
    }
    expect_visits(task);
    expect_held(task);
    EXPECT_TRUE(task.retains.has(task.held));
    EXPECT_TRUE((task.retains - task.held).has(task.lasting));
    // The input is held, or comes from the layer below.
    const bool below = stream_ == std::pair(task.chunk, task.layer);
    EXPECT_TRUE(below || task.held.has(Retained::kInput));
    if (task.output) stream_ = {task.chunk, task.layer + 1};
    EXPECT_EQ(task.segments != nullptr, task.attends());
    EXPECT_TRUE(task.retains.has(task.saved));
    EXPECT_TRUE((task.saved & task.lasting).empty());
    held_[place] = task.retains - task.saved;
    lasting_[place] = lasting_[place] | task.lasting;
    saved_[place] = saved_[place] | task.saved;
    peak_kv_ = std::max(peak_kv_, static_cast<std::int64_t>(kv_.size()));
  }

  void backward(const Task& task) {
    EXPECT_EQ(task.held, Retention::all()) << "backward without its activations";
    expect_held(task);
    held_.erase({task.chunk, task.layer});
    lasting_[{task.chunk, task.layer}] = {};
    backward_.emplace_back(task.chunk, task.layer);
    expect_visits(task);
    for (const std::int64_t p : seen_pages(task)) gradients_.insert({task.layer, p});
    peak_gradients_ = std::max(peak_gradients_, static_cast<std::int64_t>(gradients_.size()));
    EXPECT_EQ(task.freed, layout_.chunk_pages(task.chunk));
    for (std::int64_t p = task.freed.begin; p < task.freed.end; ++p) {
      EXPECT_EQ(kv_.erase({task.layer, p}), 1u) << "page " << p << " is freed twice";
      EXPECT_EQ(gradients_.erase({task.layer, p}), 1u) << "page " << p << " has no gradient";
    }
  }

  // Saved activations come back once, one task before they are found.
  void fetch(const Task& task) {
    if (task.fetches.empty()) {
      EXPECT_EQ(task.fetches_layer, -1);
      return;
    }
    const Place place{task.chunk, task.fetches_layer};
    EXPECT_EQ(saved_[place], task.fetches);
    saved_[place] = {};
    held_[place] = held_[place] | task.fetches;
  }

  void expect_held(const Task& task) {
    const Place place{task.chunk, task.layer};
    EXPECT_EQ(task.held, held_[place] | lasting_[place]) << "activations that are not there";
  }

  const SequenceLayout& layout_;
  const ScheduleOptions& options_;
  std::int64_t layers_, peak_kv_ = 0, peak_gradients_ = 0;
  std::set<Place> appended_;
  std::map<Place, Retention> held_, lasting_;  // in the episode; beyond it
  std::map<Place, Retention> saved_;           // off the device
  Place stream_{-1, -1};                       // the layer whose input was computed last
  std::vector<Place> backward_;
  Pages kv_, gradients_;
};

TEST(StepSchedule, KeepsItsPromisesOnRandomLayouts) {
  Random random(31);
  for (int i = 0; i < 1000; ++i) {
    const SequenceLayout layout = random_layout(random);
    ScheduleOptions options;
    for (std::int64_t l = pick(random, 1, 4); l > 0; --l)
      options.windows.push_back(random_window(random));
    options.keep_chunks = pick(random, 1, 5);
    const auto any = [&] { return Retention::of_bits(static_cast<unsigned>(pick(random, 0, 63))); };
    options.within_episode = any() | Retention{Retained::kInput};
    if (i % 2 == 0)
      for (std::int64_t n = pick(random, 0, layout.chunks() * 4); n > 0; --n)
        options.across_episodes.push_back(any());
    if (i % 3 == 0)
      for (std::int64_t n = pick(random, 0, layout.chunks() * 4); n > 0; --n)
        options.offloaded.push_back(any());
    SCOPED_TRACE(fmt::format("case {}: {} tokens, chunks of {}, pages of {}, keep {}", i,
                             layout.tokens, layout.chunk_tokens, layout.page_tokens,
                             options.keep_chunks));
    Simulator(layout, options).run(make_step_schedule(layout, options));
    if (HasFailure()) return;
  }
}

// (kind, chunk, layer) of an episode, in order.
std::vector<std::tuple<TaskKind, std::int64_t, std::int64_t>> order_of(const Episode& episode) {
  std::vector<std::tuple<TaskKind, std::int64_t, std::int64_t>> order;
  for (const Task& task : episode.tasks) order.emplace_back(task.kind, task.chunk, task.layer);
  return order;
}

// Pairs of chunks go forward layer by layer in turn; a sparse layer selects first, then attends.
TEST(StepSchedule, SparseLayersGoForwardAsAWavefront) {
  using enum TaskKind;
  const SequenceLayout layout{28, 8, 4, {0}};  // four chunks, of which one is kept
  ScheduleOptions options{{0, 0, 0}, 1};
  options.sparse.budgets = {4, SparseLayers::kNone, 4};
  options.sparse.selection.union_pages = 5;
  const StepSchedule schedule = make_step_schedule(layout, options);
  ASSERT_EQ(schedule.episodes.size(), 6u);
  const Episode& pair = schedule.episodes[0];
  EXPECT_EQ(pair.kind, EpisodeKind::kWavefront);
  EXPECT_EQ(pair.chunks, 2);
  EXPECT_EQ(order_of(pair), (decltype(order_of({})){{kEmbed, 0, -1},
                                                    {kLayerForward, 0, 0},  // selects
                                                    {kEmbed, 1, -1},
                                                    {kLayerForward, 1, 0},
                                                    {kLayerForward, 0, 0},  // attends
                                                    {kLayerForward, 1, 0},
                                                    {kLayerForward, 0, 1},
                                                    {kLayerForward, 1, 1},
                                                    {kLayerForward, 0, 2},  // selects
                                                    {kLayerForward, 1, 2}}));
  EXPECT_EQ(schedule.episodes[1].kind, EpisodeKind::kForward);
  std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t> selected;
  for (const Episode& episode : schedule.episodes)
    for (const Task& task : episode.tasks) {
      EXPECT_EQ(task.sparse, task.layer == 0 || task.layer == 2);
      const std::int64_t times = selected[{task.chunk, task.layer}] += task.selects ? 1 : 0;
      if (task.sparse) {
        EXPECT_EQ(times, 1) << "chunk " << task.chunk << " layer " << task.layer;
        EXPECT_LE(task.most_visited, 5 + 2);
      }
    }
  options.wavefront = false;
  for (const Episode& episode : make_step_schedule(layout, options).episodes)
    EXPECT_NE(episode.kind, EpisodeKind::kWavefront);
}

TEST(StepSchedule, OrderOfAStep) {
  using enum TaskKind;
  const SequenceLayout layout{20, 8, 4, {0}};  // three chunks
  const StepSchedule schedule = make_step_schedule(layout, {{0, 0}, 2});
  ASSERT_EQ(schedule.episodes.size(), 3u);
  EXPECT_EQ(schedule.episodes[0].kind, EpisodeKind::kForward);
  EXPECT_EQ(
      order_of(schedule.episodes[0]),
      (decltype(order_of({})){{kEmbed, 0, -1}, {kLayerForward, 0, 0}, {kLayerForward, 0, 1}}));
  EXPECT_EQ(schedule.episodes[1].kind, EpisodeKind::kKept);
  EXPECT_EQ(schedule.episodes[1].chunks, 2);
  EXPECT_EQ(order_of(schedule.episodes[1]), (decltype(order_of({})){{kEmbed, 1, -1},
                                                                    {kLayerForward, 1, 0},
                                                                    {kLayerForward, 1, 1},
                                                                    {kEmbed, 2, -1},
                                                                    {kLayerForward, 2, 0},
                                                                    {kLayerForward, 2, 1},
                                                                    {kHead, 2, -1},
                                                                    {kLayerBackward, 2, 1},
                                                                    {kLayerBackward, 2, 0},
                                                                    {kEmbedBackward, 2, -1},
                                                                    {kHead, 1, -1},
                                                                    {kLayerBackward, 1, 1},
                                                                    {kLayerBackward, 1, 0},
                                                                    {kEmbedBackward, 1, -1}}));
  EXPECT_EQ(schedule.episodes[2].kind, EpisodeKind::kRecompute);
  EXPECT_EQ(order_of(schedule.episodes[2]), (decltype(order_of({})){{kEmbed, 0, -1},
                                                                    {kLayerForward, 0, 0},
                                                                    {kLayerForward, 0, 1},
                                                                    {kHead, 0, -1},
                                                                    {kLayerBackward, 0, 1},
                                                                    {kLayerBackward, 0, 0},
                                                                    {kEmbedBackward, 0, -1}}));
  EXPECT_EQ(schedule.peak_kv_pages, 10);
  EXPECT_EQ(schedule.peak_gradient_pages,
            9);  // a page of the last layer is freed before the first layer's are created
}

TEST(StepSchedule, AWindowBoundsTheGradientPages) {
  const SequenceLayout layout{4096, 16, 4, {0}};
  EXPECT_EQ(make_step_schedule(layout, {{0}, 1}).peak_gradient_pages, 1024);
  EXPECT_EQ(make_step_schedule(layout, {{8}, 1}).peak_gradient_pages, 6);
}

// The pass of one chunk is what a whole schedule has for it, without its head.
TEST(StepSchedule, AForwardEpisodeIsThatOfAWholeSchedule) {
  const SequenceLayout layout{30, 8, 4, {0}};
  for (const bool forward_only : {false, true}) {
    ScheduleOptions options{{0, 6}, 1};
    if (forward_only) options = options.without_backward();
    const StepSchedule whole = make_step_schedule(layout, options);
    for (std::int64_t chunk = 0; chunk < 3; ++chunk) {
      const Episode episode = forward_episode(layout, options, chunk);
      const Episode& right = whole.episodes[static_cast<std::size_t>(chunk)];
      ASSERT_EQ(episode.tasks.size(), 3u);
      for (std::size_t i = 0; i < episode.tasks.size(); ++i) {
        const Task &a = episode.tasks[i], &b = right.tasks[i];
        EXPECT_EQ(a.kind, b.kind);
        EXPECT_EQ(a.layer, b.layer);
        EXPECT_EQ(a.output, b.output);
        EXPECT_EQ(a.ends_chunk, b.ends_chunk);
        EXPECT_EQ(a.visited.hull(), b.visited.hull());
        EXPECT_EQ(a.appended, b.appended);
      }
      EXPECT_EQ(episode.tasks.back().output, forward_only);
    }
  }
}

TEST(StepSchedule, RefusesNoLayersAndNothingKept) {
  const SequenceLayout layout{20, 8, 4, {0}};
  EXPECT_THROW(make_step_schedule(layout, {{}, 1}), InternalError);
  EXPECT_THROW(make_step_schedule(layout, {{0}, 0}), InternalError);
  EXPECT_THROW(make_step_schedule({20, 7, 4, {0}}, {{0}, 1}), Error);
}

}  // namespace
}  // namespace longstride
