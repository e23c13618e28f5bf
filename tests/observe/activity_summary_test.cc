#include "observe/activity_summary.h"

#include <gtest/gtest.h>

namespace longstride {
namespace {

Activity kernel(const char* name, std::uint32_t queue, std::uint64_t begin, std::uint64_t end) {
  return {Activity::Kind::kKernel, name, queue, begin * 1'000'000'000, end * 1'000'000'000};
}

TEST(ActivitySummary, CountsIdleTimeOfTheQueueThatComputes) {
  // Queue 7 is idle from 13 to 15 and from 17 to 20, even though queue 9 is running.
  const ActivitySummary s =
      summarize({kernel("a", 7, 10, 13), kernel("b", 7, 12, 13), kernel("b", 7, 15, 17),
                 kernel("copy", 9, 13, 15), kernel("copy", 9, 18, 20)});
  EXPECT_DOUBLE_EQ(s.span_s, 10);
  EXPECT_DOUBLE_EQ(s.idle_s, 5);
  EXPECT_DOUBLE_EQ(s.idle_share(), 0.5);
  ASSERT_EQ(s.rows.size(), 3u);
  EXPECT_EQ(s.rows[0].name, "copy");
  EXPECT_DOUBLE_EQ(s.rows[0].seconds, 4);
  EXPECT_EQ(s.rows[2].name, "b");
  EXPECT_EQ(s.rows[2].calls, 2);
  EXPECT_DOUBLE_EQ(s.rows[0].idle_before_s, 0);  // in another queue
  EXPECT_DOUBLE_EQ(s.rows[2].idle_before_s, 2);
}

TEST(ActivitySummary, OrderOfRecordsDoesNotMatter) {
  EXPECT_DOUBLE_EQ(summarize({kernel("b", 1, 5, 6), kernel("a", 1, 0, 4)}).idle_s, 1);
}

TEST(ActivitySummary, NothingRecordedIsNoTime) {
  EXPECT_EQ(summarize({}).rows.size(), 0u);
  EXPECT_EQ(summarize({}).idle_share(), 0);
}

}  // namespace
}  // namespace longstride
