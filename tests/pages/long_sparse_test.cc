// The time that keeping account of selected pages takes in a long step whose pages are mostly
// offloaded. Pages are tiny, so that copies take no time.
#include <gtest/gtest.h>

#include <ctime>

#include "base/random.h"
#include "pages/kv_store.h"
#include "pages/page_budget.h"

namespace longstride {
namespace {

double thread_seconds() {
  timespec now = {};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// Half of the pages are near, the others anywhere.
PageSet random_union(Random& random, std::int64_t earlier, std::int64_t count, PageRun own) {
  std::vector<bool> chosen(static_cast<std::size_t>(earlier));
  for (std::int64_t i = 0; i < count && earlier > 0; ++i) {
    const std::int64_t reach = i % 2 == 0 ? std::min<std::int64_t>(earlier, 2 * count) : earlier;
    chosen[static_cast<std::size_t>(
        earlier - 1 - static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(reach))))] =
        true;
  }
  std::vector<PageRun> runs;
  for (std::int64_t page = 0; page < earlier; ++page)
    if (chosen[static_cast<std::size_t>(page)]) runs.push_back({page, page + 1});
  runs.push_back(own);
  return PageSet(runs);
}

TEST(LongSparse, AccountsOfSelectedPagesAreQuick) {
  constexpr std::int64_t kLayers = 7, kTokens = 1 << 18, kChunkTokens = 4096, kPage = 128,
                         kUnion = 512;
  const SequenceLayout layout{kTokens, kChunkTokens, kPage, {0}};
  const StepSchedule schedule = make_step_schedule(
      layout, {.windows = std::vector<std::int64_t>(kLayers, 0),
               .sparse = {{.union_pages = kUnion}, std::vector<std::int64_t>(kLayers, 64)}});
  const KvShape shape{.layers = kLayers, .kv_heads = 1, .head_size = 1, .page_tokens = kPage};
  const std::int64_t least = least_device_bytes(layout, schedule, shape);
  const PageSpread spread = spread_pages(layout, schedule, shape, {3 * least, PageBudget::kAll});
  const auto device = make_cpu_device();
  KvStore store(*device, shape, spread.capacity);
  Random random(1);
  double bookkeeping = 0;
  std::int64_t pages = 0;
  const auto timed = [&](const auto& f) {
    const double before = thread_seconds();
    f();
    bookkeeping += thread_seconds() - before;
  };
  timed([&] { store.begin(schedule); });
  for (const Episode& episode : schedule.episodes)
    for (const Task& task : episode.tasks) {
      if (task.layer < 0) continue;
      if (task.selects) {
        const PageSet chosen = random_union(random, layout.chunk_pages(task.chunk).begin, kUnion,
                                            layout.chunk_pages(task.chunk));
        timed([&] { store.select(task, chosen); });
      }
      timed([&] {
        store.enter(task);
        if (task.attends()) store.enter_segment(task, 0);
        store.leave(task);
      });
      if (task.attends()) pages += task.most_visited;
    }
  store.finish();
  EXPECT_GT(store.moved().in, 0);
  const double each = bookkeeping / static_cast<double>(pages);
  fmt::print("{} accesses to pages, {:.2f} us each; {} of {} pages on the device\n", pages,
             each * 1e6, spread.capacity.kv[0].pages, schedule.peak_kv_pages);
#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LT(each, 4e-6);
#endif
}

}  // namespace
}  // namespace longstride
