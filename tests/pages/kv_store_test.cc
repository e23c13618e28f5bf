#include "pages/kv_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/error.h"

namespace longstride {
namespace {

const KvShape kShape{.layers = 2, .kv_heads = 3, .head_size = 4, .page_tokens = 5};

Task append(std::int64_t layer, PageRun run) {
  Task task;
  task.kind = TaskKind::kLayerForward;
  task.layer = layer;
  task.append = true;
  task.appended = run;
  return task;
}
Task touch_gradients(std::int64_t layer, PageRun run, PageRun freed = {}) {
  Task task;
  task.kind = TaskKind::kLayerBackward;
  task.layer = layer;
  task.visited = run;
  task.freed = freed;
  return task;
}

class KvStores : public ::testing::Test {
 protected:
  std::unique_ptr<Device> device_ = make_cpu_device();
  KvStore store_{
      *device_, kShape, {.logical_pages = 6, .kv = {{.pages = 8}}, .gradients = {{.pages = 4}}}};
  std::vector<Task> tasks_;
  std::size_t next_ = 0;

  void start(const std::vector<Task>& tasks) {
    tasks_ = tasks;
    next_ = 0;
    store_.begin({.episodes = {{EpisodeKind::kForward, 1, tasks}}});
  }
  void step() {
    store_.enter(tasks_[next_]);
    store_.leave(tasks_[next_++]);
  }
  void play(const std::vector<Task>& tasks) {
    start(tasks);
    while (next_ < tasks_.size()) step();
  }
};

std::vector<std::int32_t> slots(const PagesView& view) { return {view.slots, view.slots + 6}; }

bool is_zero(const PagesView& view, std::int64_t page) {
  const std::byte* at = view.plane(page, 0);
  return std::all_of(at, at + view.page_bytes, [](std::byte b) { return b == std::byte{0}; });
}

void fill(const PagesView& view, std::int64_t page) {
  std::memset(view.plane(page, 0), 0xab, static_cast<std::size_t>(view.page_bytes));
}

TEST_F(KvStores, AppendsPerLayer) {
  EXPECT_EQ(kShape.page_bytes(), 2 * 5 * 3 * 4 * 4);
  play({append(0, {0, 2}), append(1, {0, 1}), append(0, {2, 3})});
  // A layer's pages are in consecutive slots while its share of the pool lasts.
  EXPECT_EQ(slots(store_.kv(0)), (std::vector<std::int32_t>{0, 1, 2, -1, -1, -1}));
  EXPECT_EQ(slots(store_.kv(1)), (std::vector<std::int32_t>{4, -1, -1, -1, -1, -1}));
  EXPECT_EQ(slots(store_.gradients(0)), std::vector<std::int32_t>(6, -1));
  EXPECT_EQ(store_.kv_pool().in_use(), 4);
  EXPECT_EQ(store_.gradient_pool().in_use(), 0);
}

// A layer with more pages than its share: the others go to free slots, each to its own.
TEST_F(KvStores, PagesBeyondALayersShare) {
  play({append(0, {0, 6}), append(1, {0, 2})});
  std::vector<std::int32_t> all = slots(store_.kv(0));
  all.push_back(store_.kv(1).slots[0]);
  all.push_back(store_.kv(1).slots[1]);
  std::sort(all.begin(), all.end());
  EXPECT_EQ(all, (std::vector<std::int32_t>{0, 1, 2, 3, 4, 5, 6, 7}));
}

TEST_F(KvStores, AppendingTwiceIsAnError) {
  start({append(1, {1, 3}), append(1, {2, 3})});
  step();
  EXPECT_THROW(step(), InternalError);
}

TEST_F(KvStores, KnowsItsLayersAndPages) {
  EXPECT_ANY_THROW(play({append(2, {0, 1})}));
  EXPECT_ANY_THROW(start({append(0, {5, 7})}));
  EXPECT_ANY_THROW(start({touch_gradients(0, {6, 7})}));
  EXPECT_ANY_THROW(store_.kv(2));
}

TEST_F(KvStores, ViewsNameShapeAndStrides) {
  play({append(0, {0, 3})});
  const PagesView view = store_.kv(0);
  EXPECT_EQ(view.base, store_.kv_pool().base());
  EXPECT_EQ(view.page_bytes, kShape.page_bytes());
  EXPECT_EQ(view.page_tokens, 5);
  EXPECT_EQ(view.kv_heads, 3);
  EXPECT_EQ(view.head_size, 4);
  EXPECT_EQ(view.dtype, DType::kF32);
  EXPECT_EQ(view.plane(2, 0), store_.kv_pool().page(2));
  EXPECT_EQ(view.plane(2, 1), store_.kv_pool().page(2) + 3 * 4 * 4);
}

TEST_F(KvStores, GradientsAreZeroAtFirstTouchOnly) {
  start({append(0, {0, 2}), touch_gradients(0, {1, 2}), touch_gradients(0, {0, 2})});
  step();
  step();
  fill(store_.gradients(0), 1);
  step();  // page 1 exists already and keeps its values
  EXPECT_TRUE(is_zero(store_.gradients(0), 0));
  EXPECT_FALSE(is_zero(store_.gradients(0), 1));
  EXPECT_EQ(store_.gradient_pool().in_use(), 2);
}

TEST_F(KvStores, AReusedGradientSlotIsZeroAgain) {
  start({append(0, {0, 1}), touch_gradients(0, {0, 1}), touch_gradients(0, {0, 1}, {0, 1}),
         append(0, {2, 3}), touch_gradients(0, {2, 3})});
  step();
  step();
  fill(store_.gradients(0), 0);
  const std::int32_t slot = store_.gradients(0).slots[0];
  step();
  step();
  step();
  ASSERT_EQ(store_.gradients(0).slots[2], slot);
  EXPECT_TRUE(is_zero(store_.gradients(0), 2));
}

TEST_F(KvStores, ReleaseReturnsBoth) {
  play({append(0, {0, 3}), append(1, {0, 3}), touch_gradients(0, {1, 3}, {1, 3})});
  EXPECT_EQ(store_.kv_pool().in_use(), 4);
  EXPECT_EQ(store_.gradient_pool().in_use(), 0);
  EXPECT_EQ(slots(store_.kv(0)), (std::vector<std::int32_t>{0, -1, -1, -1, -1, -1}));
  EXPECT_EQ(slots(store_.gradients(0)), std::vector<std::int32_t>(6, -1));
  EXPECT_EQ(store_.kv_pool().peak(), 6);
  EXPECT_EQ(store_.gradient_pool().peak(), 2);
}

TEST_F(KvStores, ReleaseAllEndsEverything) {
  start({append(0, {0, 3}), append(1, {3, 6}), touch_gradients(1, {3, 5}), append(0, {3, 4})});
  for (int i = 0; i < 3; ++i) step();
  store_.release_all();  // before the last task
  EXPECT_EQ(store_.kv_pool().in_use(), 0);
  EXPECT_EQ(store_.gradient_pool().in_use(), 0);
  for (const std::int64_t layer : {0, 1}) {
    EXPECT_EQ(slots(store_.kv(layer)), std::vector<std::int32_t>(6, -1));
    EXPECT_EQ(slots(store_.gradients(layer)), std::vector<std::int32_t>(6, -1));
  }
  EXPECT_NO_THROW(play({append(0, {0, 6})}));
}

// Computes only addresses: nothing of this size is allocated or read.
TEST(PagesView, AddressesPastTwoGigabytes) {
  const std::uintptr_t base = std::uintptr_t{1} << 40;
  const std::vector<std::int32_t> slots = {0, 100'000, 2'147'483'646, -1};
  PagesView view;
  view.base = reinterpret_cast<std::byte*>(base);
  view.slots = slots.data();
  view.page_bytes = 2 * 128 * 8 * 128 * 4;
  view.kv_heads = 8;
  view.head_size = 128;
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(view.plane(0, 1)), base + 4096);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(view.plane(1, 0)), base + 104'857'600'000);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(view.plane(2, 1)),
            base + 2'147'483'646ull * 1'048'576ull + 4096);
}

// On the shapes device a pool may be larger than any memory; its base is null, so an address is an
// offset.
TEST(PagePool, PagesPastTwoGigabytes) {
  const std::int64_t page_bytes = std::int64_t{1} << 20, capacity = 1'000'000;
  const PagePool pool(shapes_device(DeviceKind::kCpu), page_bytes, capacity, "pages");
  EXPECT_EQ(pool.page(999'999) - pool.base(), 999'999 * page_bytes);
}

}  // namespace
}  // namespace longstride
