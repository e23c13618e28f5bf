#include "pages/page_budget.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/random.h"
#include "tests/data/temp_directory.h"

namespace longstride {
namespace {

const KvShape kShape{.layers = 3, .kv_heads = 1, .head_size = 2, .page_tokens = 4};
const SequenceLayout kLayout{64, 8, 4, {0}};  // 8 chunks of 2 pages

StepSchedule dense() { return make_step_schedule(kLayout, {{0, 0, 0}, 1}); }

TEST(SpreadPages, EverythingOnTheDeviceWhereItFits) {
  const StepSchedule schedule = dense();
  for (const std::int64_t device : {PageBudget::kAll, std::int64_t{1} << 40}) {
    const PageSpread s = spread_pages(kLayout, schedule, kShape, {.device = device});
    EXPECT_EQ(s.capacity.kv[0].pages, schedule.peak_kv_pages);
    EXPECT_EQ(s.capacity.gradients[0].pages, schedule.peak_gradient_pages);
    EXPECT_EQ(s.host_bytes + s.disk_bytes, 0);
    EXPECT_EQ(s.capacity.kv[0].offload.host_records + s.capacity.kv[0].offload.disk_records, 0);
  }
}

TEST(SpreadPages, StaysWithinEveryBudget) {
  const StepSchedule schedule = dense();
  const std::int64_t least = least_device_bytes(kLayout, schedule, kShape),
                     all = schedule.peak_kv_pages * kShape.page_bytes() +
                           schedule.peak_gradient_pages * kShape.gradient_page_bytes();
  ASSERT_EQ(least, 16 * kShape.page_bytes() + 16 * kShape.gradient_page_bytes());
  for (std::int64_t device = least; device < all; device += 37)
    for (const std::int64_t host : {std::int64_t{0}, all / 2, std::int64_t{PageBudget::kAll}}) {
      const PageSpread s =
          spread_pages(kLayout, schedule, kShape, {device, host, PageBudget::kAll, "/somewhere"});
      EXPECT_LE(s.kv_bytes + s.gradient_bytes, device);
      EXPECT_GE(s.capacity.kv[0].pages, 16);
      EXPECT_GE(s.capacity.gradients[0].pages, 16);
      if (host != PageBudget::kAll) {
        const auto bytes = [](const OffloadCapacity& offload, std::int64_t page) {
          return offload.host_records * 2 * page;
        };
        EXPECT_LE(bytes(s.capacity.kv[0].offload, kShape.page_bytes()) +
                      bytes(s.capacity.gradients[0].offload, kShape.gradient_page_bytes()),
                  host);
      }
      const OffloadCapacity& kv = s.capacity.kv[0].offload;
      if (s.capacity.kv[0].pages < schedule.peak_kv_pages) {
        EXPECT_GE(2 * kv.records(), schedule.peak_kv_pages - s.capacity.kv[0].pages);
        EXPECT_LE(kv.records(), 3 * 8);
      }
    }
}

// Selected pages move one by one, and their gradients never to the disk.
TEST(SpreadPages, SparseGradientsStayOffTheDisk) {
  ScheduleOptions options{{0, 0, 0}, 1};
  options.sparse.budgets = {3, 3, 3};
  options.sparse.selection.union_pages = 4;
  const StepSchedule schedule = make_step_schedule(kLayout, options);
  const std::int64_t least = least_device_bytes(kLayout, schedule, kShape);
  EXPECT_EQ(least, 6 * kShape.page_bytes() + 6 * kShape.gradient_page_bytes());
  const std::int64_t gradients = schedule.peak_gradient_pages * kShape.gradient_page_bytes();
  const PageSpread s = spread_pages(kLayout, schedule, kShape,
                                    {least, 2 * gradients, PageBudget::kAll, "/somewhere"});
  EXPECT_EQ(s.capacity.pages_per_group, 1);
  EXPECT_EQ(s.capacity.gradients[0].offload.disk_records, 0);
  EXPECT_GT(s.capacity.gradients[0].offload.host_records, 0);
  EXPECT_TRUE(says(error_of([&] {
                     spread_pages(kLayout, schedule, kShape,
                                  {least, gradients / 4, PageBudget::kAll, "/somewhere"});
                   }),
                   {"gradients of pages", "host memory", "memory.host", "bf16"}));
}

// K/V come first on the device, but gradients that host memory has no room for come before them.
TEST(SpreadPages, SparseGradientsStayOnTheDeviceIfTheHostIsFull) {
  const SequenceLayout layout{4096, 8, 4, {0}};
  ScheduleOptions options{{0, 0, 0}, 1};
  options.sparse.budgets = {3, 3, 3};
  options.sparse.selection.union_pages = 4;
  const StepSchedule schedule = make_step_schedule(layout, options);
  const std::int64_t gradients = schedule.peak_gradient_pages * kShape.gradient_page_bytes(),
                     device = gradients;  // enough for them, and for a part of K/V
  const auto gradient_pages = [&](std::int64_t host) {
    const PageSpread s =
        spread_pages(layout, schedule, kShape, {device, host, PageBudget::kAll, "/somewhere"});
    EXPECT_LE(s.kv_bytes + s.gradient_bytes, device);
    EXPECT_LE(s.capacity.gradients[0].offload.host_records * kShape.gradient_page_bytes(), host);
    EXPECT_EQ(s.capacity.gradients[0].offload.disk_records, 0);
    return s.capacity.gradients[0].pages;
  };
  const std::int64_t with_much = gradient_pages(2 * gradients);
  EXPECT_LT(with_much, schedule.peak_gradient_pages / 2);
  std::int64_t last = with_much;
  for (const std::int64_t host : {gradients / 2, gradients / 3, gradients / 4}) {
    const std::int64_t here = gradient_pages(host);
    EXPECT_GT(here, last) << host;
    EXPECT_LE(here * kShape.gradient_page_bytes(), gradients - host + gradients / 16) << host;
    last = here;
  }
}

// Layers of two types share the budgets: pools of sparse layers come first, and their gradients
// stay off the disk; those of windows go there.
TEST(SpreadPages, PoolsOfSeveralTypes) {
  const SequenceLayout layout{4096, 8, 4, {0}};
  ScheduleOptions options{{0, 8, 0, 8}, 1};
  options.sparse.budgets = {3, SparseLayers::kNone, 3, SparseLayers::kNone};
  options.sparse.selection.union_pages = 4;
  const StepSchedule schedule = make_step_schedule(layout, options);
  const PageTypes sparse{DType::kI8, DType::kF32}, window{DType::kBF16, DType::kBF16};
  const KvShape shape{.layers = 4,
                      .kv_heads = 1,
                      .head_size = 16,
                      .page_tokens = 4,
                      .by_layer = {sparse, window, sparse, window}};
  const PageSpread all = spread_pages(layout, schedule, shape, {});
  ASSERT_EQ(all.capacity.kv.size(), 2u);
  ASSERT_EQ(all.capacity.gradients.size(), 2u);
  EXPECT_EQ(all.capacity.kv[1].layers, (std::vector<std::int64_t>{1, 3}));
  EXPECT_EQ(all.capacity.kv[0].page_bytes, shape.page_bytes(0));
  EXPECT_EQ(all.capacity.kv[0].most, 2 * 1024);
  EXPECT_EQ(all.capacity.kv[0].most + all.capacity.kv[1].most, schedule.peak_kv_pages);
  EXPECT_GE(all.capacity.gradients[0].most + all.capacity.gradients[1].most,
            schedule.peak_gradient_pages);
  EXPECT_LT(all.capacity.gradients[1].most, 20);
  const std::int64_t streaming = streaming_device_bytes(layout, schedule, shape),
                     gradients = 2048 * shape.gradient_page_bytes(0),
                     keys = 2048 * shape.page_bytes(0);
  // Room for half of the sparse layers' keys, and on the host for their gradients and the others.
  const PageSpread s = spread_pages(
      layout, schedule, shape,
      {streaming + keys / 2, gradients + gradients / 8 + keys, PageBudget::kAll, "/somewhere"});
  EXPECT_GT(s.capacity.kv[0].pages, 1024);
  EXPECT_LT(s.capacity.kv[1].pages, 50);
  EXPECT_EQ(s.capacity.kv[0].offload.disk_records, 0);
  EXPECT_EQ(s.capacity.gradients[0].offload.disk_records, 0);
  EXPECT_GT(s.capacity.kv[1].offload.disk_records, 0);
  EXPECT_LE(s.kv_bytes + s.gradient_bytes, streaming + keys / 2);
  for (std::int64_t share = 0; share <= 8; ++share) {
    const std::int64_t least = least_device_bytes(layout, schedule, shape),
                       device = least + (streaming - least) * share / 8;
    const PageSpread tight = spread_pages(layout, schedule, shape, {.device = device});
    EXPECT_LE(tight.kv_bytes + tight.gradient_bytes, device);
  }
}

// A disk needs many requests in flight, so single pages get more buffers than whole groups.
TEST(SpreadPages, BuffersOfTheDiskGrowAsRecordsShrink) {
  const KvShape large{.layers = 2, .kv_heads = 4, .head_size = 128, .page_tokens = 128};
  const SequenceLayout layout{1 << 18, 4096, 128, {0}};
  const auto buffers = [&](bool sparse) {
    ScheduleOptions options{{0, 0}, 1};
    if (sparse) options.sparse.budgets = {64, 64};
    const StepSchedule schedule = make_step_schedule(layout, options);
    const std::int64_t gradients = schedule.peak_gradient_pages * large.gradient_page_bytes();
    const PageBudget budget{least_device_bytes(layout, schedule, large),
                            sparse ? gradients * 9 / 8 : 0, PageBudget::kAll, "/somewhere"};
    const PageSpread s = spread_pages(layout, schedule, large, budget);
    EXPECT_GT(s.capacity.kv[0].offload.disk_records, 0);
    return s.capacity.kv[0].offload.disk_buffers;
  };
  EXPECT_EQ(buffers(false), 16);  // of 16 MiB, in F32
  EXPECT_EQ(buffers(true), 512);  // of 512 KiB
}

TEST(SpreadPages, RefusesWithNumbers) {
  const StepSchedule schedule = dense();
  const std::int64_t least = least_device_bytes(kLayout, schedule, kShape);
  EXPECT_TRUE(
      says(error_of([&] { spread_pages(kLayout, schedule, kShape, {.device = least - 1}); }),
           {"largest working set of 64 tokens", "memory.gpu"}));
  EXPECT_TRUE(says(
      error_of([&] { spread_pages(kLayout, schedule, kShape, {.device = least, .host = 100}); }),
      {"offloaded pages need", "memory.host", "memory.disk"}));
}

// A window needs only what it sees, whatever the context.
TEST(SpreadPages, AWindowNeedsLittle) {
  const StepSchedule schedule = make_step_schedule(kLayout, {{8, 8, 8}, 1});
  EXPECT_EQ(least_device_bytes(kLayout, schedule, kShape),
            4 * kShape.page_bytes() + 4 * kShape.gradient_page_bytes());
}

// With a window few gradient pages exist at once, and they are accessed all the time: they get
// capacity first.
TEST(SpreadPages, TheSmallerKindStaysFirst) {
  const SequenceLayout layout{640, 8, 4, {0}};
  const StepSchedule schedule = make_step_schedule(layout, {{8, 8, 8}, 1});
  const std::int64_t streaming = streaming_device_bytes(layout, schedule, kShape);
  const PageSpread s = spread_pages(
      layout, schedule, kShape,
      {.device = streaming + schedule.peak_gradient_pages * kShape.gradient_page_bytes()});
  EXPECT_EQ(s.capacity.gradients[0].pages, schedule.peak_gradient_pages);
  EXPECT_LT(s.capacity.kv[0].pages, schedule.peak_kv_pages);
  EXPECT_EQ(s.capacity.gradients[0].offload.records(), 0);
}

// If keys are cut into segments, the largest working set does not grow with the context.
TEST(SpreadPages, PartsNeedTheSameForEveryContext) {
  std::int64_t before = 0;
  for (const std::int64_t tokens : {64, 128, 1024}) {
    const SequenceLayout layout{tokens, 8, 4, {0}};
    const StepSchedule schedule =
        make_step_schedule(layout, {.windows = {0, 0, 0},
                                    .forward_cut = {.tokens = 16},
                                    .backward_cut = {.tokens = 16, .own_apart = true}});
    // Forward: 16 keys and the chunk's own 8 after them; backward: only 16, wherever they begin.
    EXPECT_EQ(least_device_bytes(layout, schedule, kShape),
              8 * kShape.page_bytes() + 6 * kShape.gradient_page_bytes());
    const std::int64_t streaming = streaming_device_bytes(layout, schedule, kShape);
    if (before > 0) {
      EXPECT_EQ(streaming, before);
    }
    before = streaming;
  }
}

// A plan made before documents are known has capacity for every segment of every sequence.
TEST(SpreadPages, PartsOfPackedDocumentsFitThePlan) {
  std::int64_t with_documents = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    Random random(seed, 5);
    const auto up_to = [&](std::int64_t n) {
      return 1 + static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(n)));
    };
    const std::int64_t page = 4, chunk = page * up_to(5);
    SequenceLayout layout{up_to(40) * page + up_to(page), chunk, page, {0}};
    const auto cut = [&] {
      return KeyCut{.tokens = page * up_to(12),
                    .from_first_page = random.below(2) == 0,
                    .own_apart = random.below(2) == 0,
                    .documents_apart = random.below(2) == 0,
                    .even_tokens = page * static_cast<std::int64_t>(random.below(6))};
    };
    ScheduleOptions options{.windows = {0, up_to(50)}, .packed = true};
    options.forward_cut = cut();
    options.backward_cut = cut();
    const std::int64_t least =
        least_device_bytes(layout, make_step_schedule(layout, options), kShape);
    for (std::int64_t at = up_to(60); at < layout.tokens; at += up_to(60))
      layout.document_starts.push_back(at);
    const std::int64_t per = chunk / page;
    std::int64_t kv = 0, gradients = 0;
    for (const Episode& episode : make_step_schedule(layout, options).episodes)
      for (const Task& task : episode.tasks) {
        if (task.segments == nullptr) continue;
        for (const KeySegment& part : *task.segments) {
          const std::int64_t first = part.begin / chunk, end = (part.end + chunk - 1) / chunk,
                             pages = std::min((end - first) * per, layout.pages() - first * per);
          kv = std::max(kv, pages + (part.last ? 0 : task.appended.size()));
          if (task.kind == TaskKind::kLayerBackward) gradients = std::max(gradients, pages);
          with_documents += !part.is_all() && layout.tokens_before_documents(task.chunk) <
                                                  layout.chunk_size(task.chunk);
        }
      }
    EXPECT_LE(kv * kShape.page_bytes() + gradients * kShape.gradient_page_bytes(), least)
        << "seed " << seed;
  }
  EXPECT_GT(with_documents, 1000);
}

}  // namespace
}  // namespace longstride
