// Keys, values and gradients of whole steps, in groups that are independent of the chunks.
#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "pages/kv_store.h"
#include "tests/pages/watched_mover.h"

namespace longstride {
namespace {

constexpr std::int64_t kPage = 4, kChunkPages = 2, kChunk = kChunkPages * kPage;
const KvShape kShape{.layers = 2, .kv_heads = 1, .head_size = 2, .page_tokens = kPage};
constexpr std::int64_t kLongest = 8;  // pages of a segment, or of a window with its chunk

class Player {
 public:
  Player(const StepSchedule& schedule, const KvCapacity& capacity)
      : schedule_(schedule),
        store_(*device_, kShape, capacity, std::make_unique<WatchedMover>(watch_)) {}

  void play() {
    store_.begin(schedule_);
    for (const Episode& episode : schedule_.episodes)
      for (const Task& task : episode.tasks)
        if (task.layer >= 0) step(task);
    EXPECT_EQ(store_.kv_pool().in_use() + store_.gradient_pool().in_use(), 0);
    EXPECT_EQ(watch_.races, 0);
    EXPECT_TRUE(visits_.empty()) << "gradients of pages that were not freed";
  }
  MovedBytes moved() const { return store_.moved(); }

 private:
  void step(const Task& task) {
    store_.enter(task);
    for (std::int64_t page = task.appended.begin; page < task.appended.end; ++page)
      fill(store_.kv(task.layer), page, value(task.layer, page));
    const std::vector<KeySegment> none;
    const std::vector<KeySegment>& segments = task.segments ? *task.segments : none;
    for (std::size_t i = 0; i < segments.size(); ++i) {
      store_.enter_segment(task, i);
      const std::int64_t P = kShape.page_tokens, end = (segments[i].end + P - 1) / P;
      for (std::int64_t page = segments[i].begin / P; page < end; ++page) {
        if (!task.visited.contains(page)) continue;
        EXPECT_TRUE(holds(store_.kv(task.layer), page, value(task.layer, page)));
        if (task.kind != TaskKind::kLayerBackward) continue;
        int& visits = visits_[{task.layer, page}];
        EXPECT_TRUE(holds(store_.gradients(task.layer), page, visits)) << "page " << page;
        fill(store_.gradients(task.layer), page, ++visits);
      }
    }
    store_.leave(task);
    for (std::int64_t page = task.freed.begin; page < task.freed.end; ++page)
      visits_.erase({task.layer, page});
  }
  static int value(std::int64_t layer, std::int64_t page) {
    return static_cast<int>(1 + layer * 100 + page);
  }
  static void fill(const PagesView& view, std::int64_t page, int value) {
    std::memset(view.plane(page, 0), value, static_cast<std::size_t>(view.page_bytes));
  }
  static bool holds(const PagesView& view, std::int64_t page, int value) {
    const std::byte* const at = view.plane(page, 0);
    return view.slots[page] >= 0 && std::all_of(at, at + view.page_bytes, [&](std::byte b) {
             return b == static_cast<std::byte>(value);
           });
  }

  const StepSchedule& schedule_;
  MoverWatch watch_{.granule = kShape.page_bytes()};
  std::unique_ptr<Device> device_ = make_cpu_device();
  KvStore store_;
  std::map<std::pair<std::int64_t, std::int64_t>, int> visits_;
};

// Chunks of layer 0 visit every third page before them, and none of those in some segments.
void select_pages(StepSchedule& schedule, const SequenceLayout& layout) {
  for (Episode& episode : schedule.episodes)
    for (Task& task : episode.tasks) {
      if (task.layer != 0) continue;
      const PageRun own = layout.chunk_pages(task.chunk);
      std::vector<PageRun> runs;
      for (std::int64_t page = 0; page < own.begin; page += 3)
        if (page / 8 % 2 == 0) runs.push_back({page, page + 1});
      runs.push_back(own);
      task.visited = PageSet(runs);
    }
}

void expect_a_step(std::int64_t tokens, std::int64_t window, std::int64_t per, bool sparse) {
  const SequenceLayout layout{tokens, kChunk, kShape.page_tokens, {0}};
  const KeyCut cut{.tokens = 2 * kChunk, .own_apart = true};
  StepSchedule schedule =
      make_step_schedule(layout, {.windows = {0, window}, .forward_cut = cut, .backward_cut = cut});
  if (sparse) select_pages(schedule, layout);
  // A segment and the chunk's own pages, each in groups that they fill only partly.
  const std::int64_t groups = (layout.pages() + per - 1) / per, most = groups * per,
                     here =
                         std::min(kLongest + 2 * per, most) + std::min(kChunkPages + 2 * per, most);
  const OffloadCapacity offload{kShape.layers * groups, 0};
  Player player(schedule, {.logical_pages = layout.pages(),
                           .pages_per_group = per,
                           .kv = {{.pages = here, .offload = offload}},
                           .gradients = {{.pages = here, .offload = offload}}});
  for (int sequence = 0; sequence < 2; ++sequence) player.play();
  if (per < 100 && !sparse) {
    EXPECT_GT(player.moved().in, 0) << "groups of " << per;
  }
}

TEST(KvGroups, AnyGroupsHoldAStep) {
  for (const std::int64_t tokens : {99, 120})
    for (const std::int64_t window : {0, 19})
      for (const std::int64_t per : {1, 2, 3, 5, 100})
        for (const bool sparse : {false, true}) expect_a_step(tokens, window, per, sparse);
}

}  // namespace
}  // namespace longstride
