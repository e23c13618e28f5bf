// The memory and time of planning a step of four million tokens.
#include <gtest/gtest.h>

#include <ctime>

#include "pages/kv_store.h"
#include "pages/residency.h"

namespace longstride {
namespace {

constexpr std::int64_t kLongLayers = 28, kLongTokens = std::int64_t{4} << 20, kLongChunk = 1024,
                       kLongPage = 128;
constexpr std::int64_t kMostBytes = std::int64_t{256} << 20;
constexpr double kMostSeconds = 3;

// CPU time of this thread, as the machine may have other work.
double cpu_seconds() {
  timespec now = {};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

struct ScheduleBytes {
  std::int64_t tasks = 0, segments = 0;
};
ScheduleBytes bytes_of(const StepSchedule& schedule) {
  ScheduleBytes bytes;
  std::shared_ptr<const std::vector<KeySegment>> last;
  for (const Episode& episode : schedule.episodes) {
    bytes.tasks +=
        static_cast<std::int64_t>(sizeof(Episode) + episode.tasks.capacity() * sizeof(Task));
    for (const Task& task : episode.tasks)
      if (task.segments && task.segments != last) {
        last = task.segments;  // tasks of a chunk share their lists
        bytes.segments += static_cast<std::int64_t>(last->capacity() * sizeof(KeySegment));
      }
  }
  return bytes;
}

void plan(const KeyCut& forward, const KeyCut& backward) {
  const double start = cpu_seconds();
  const StepSchedule schedule = make_step_schedule(
      {.tokens = kLongTokens, .chunk_tokens = kLongChunk, .page_tokens = kLongPage},
      {.windows = std::vector<std::int64_t>(kLongLayers, 0),
       .forward_cut = forward,
       .backward_cut = backward});
  const double scheduled = cpu_seconds();
  KvAccesses lists = list_accesses(
      schedule, {.layers = kLongLayers, .kv_heads = 1, .head_size = 1, .page_tokens = kLongPage},
      true);
  const std::int64_t accesses = lists.kv[0].size() + lists.gradients[0].size();
  const double listed = cpu_seconds();
  Residency kv(kLongLayers, kLongTokens / kLongPage, kLongChunk / kLongPage),
      gradients(kLongLayers, kLongTokens / kLongPage, kLongChunk / kLongPage);
  kv.begin(std::move(lists.kv[0]));
  gradients.begin(std::move(lists.gradients[0]));
  const double ready = cpu_seconds();

  const ScheduleBytes schedule_bytes = bytes_of(schedule);
  const std::int64_t bytes =
      schedule_bytes.tasks + schedule_bytes.segments + kv.bytes() + gradients.bytes();
  fmt::print(
      "{} accesses; {:.0f} MiB: tasks {:.0f}, K/V {:.0f}, gradients {:.0f}; segments {:.0f}; "
      " {:.2f} s: schedule {:.2f}, accesses {:.2f}, residency {:.2f}\n",
      accesses, static_cast<double>(bytes) / (1 << 20),
      static_cast<double>(schedule_bytes.tasks) / (1 << 20),
      static_cast<double>(kv.bytes()) / (1 << 20),
      static_cast<double>(gradients.bytes()) / (1 << 20),
      static_cast<double>(schedule_bytes.segments) / (1 << 20), ready - start, scheduled - start,
      listed - scheduled, ready - listed);
  EXPECT_LE(bytes, kMostBytes);
#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LE(ready - start, kMostSeconds);
#endif
}

TEST(LongPlan, DenseInOnePart) { plan({}, {}); }

// As the CUDA backend cuts keys in exact mode.
TEST(LongPlan, DenseInParts) {
  plan({.tokens = 32768, .documents_apart = true, .even_tokens = 1024},
       {.tokens = 16384, .own_apart = true, .even_tokens = 1024});
}

}  // namespace
}  // namespace longstride
