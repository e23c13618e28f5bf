#include "base/trace_spans.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <thread>
#include <vector>

#include "base/error.h"

namespace longstride {
namespace {

TEST(TraceSpans, NamesAreTheirParts) {
  EXPECT_EQ(text_of({"wait"}), "wait");
  EXPECT_EQ(text_of({"step", 7}), "step 7");
  EXPECT_EQ(text_of({.what = "forward", .chunk = 3, .layer = 0}), "forward chunk 3 layer 0");
  EXPECT_EQ(text_of({.what = "write", .bytes = 100}), "write");
}

TEST(TraceSpans, OffRecordsNothing) {
  ASSERT_FALSE(trace_spans().on());
  { const TraceSpan span(TraceTrack::kDisk, {"read"}); }
  trace_spans().start(8);
  const TraceSpans::Recorded recorded = trace_spans().stop();
  EXPECT_EQ(recorded.spans.size(), 0u);
  EXPECT_EQ(recorded.dropped, 0);
}

TEST(TraceSpans, HoldsWhatRanWhen) {
  const std::uint64_t before = trace_clock_ns();
  trace_spans().start(8);
  {
    const TraceSpan outer(TraceTrack::kStep, {"step", 1});
    const TraceSpan inner(TraceTrack::kDisk, {.what = "read", .layer = 2, .bytes = 100});
  }
  std::vector<Span> spans = trace_spans().stop().spans;
  ASSERT_EQ(spans.size(), 2u);
  std::ranges::sort(spans, {}, &Span::track);
  EXPECT_EQ(text_of(spans[0].name), "step 1");
  EXPECT_EQ(text_of(spans[1].name), "read layer 2");
  EXPECT_EQ(spans[1].name.bytes, 100);
  EXPECT_EQ(spans[1].track, TraceTrack::kDisk);
  EXPECT_LE(before, spans[0].begin_ns);
  EXPECT_LE(spans[0].begin_ns, spans[1].begin_ns);
  EXPECT_LE(spans[1].begin_ns, spans[1].end_ns);
  EXPECT_LE(spans[1].end_ns, spans[0].end_ns);
  EXPECT_LE(spans[0].end_ns, trace_clock_ns());
}

TEST(TraceSpans, WhatTheRecordingDoesNotHoldWholeIsInNone) {
  std::optional<TraceSpan> before, first, second;
  before.emplace(TraceTrack::kStep, SpanName{"before"});
  trace_spans().start(8);
  before.reset();
  first.emplace(TraceTrack::kStep, SpanName{"first"});
  EXPECT_EQ(trace_spans().stop().spans.size(), 0u);
  trace_spans().start(8);
  second.emplace(TraceTrack::kStep, SpanName{"second"});
  first.reset();
  second.reset();
  const std::vector<Span> spans = trace_spans().stop().spans;
  ASSERT_EQ(spans.size(), 1u);
  EXPECT_EQ(text_of(spans[0].name), "second");
}

TEST(TraceSpans, CountsWhatDoesNotFit) {
  trace_spans().start(3);
  for (int i = 0; i < 10; ++i) const TraceSpan span(TraceTrack::kStep, {"step", i});
  const TraceSpans::Recorded recorded = trace_spans().stop();
  ASSERT_EQ(recorded.spans.size(), 3u);
  EXPECT_EQ(recorded.spans.back().name.number, 2);
  EXPECT_EQ(recorded.dropped, 7);
  // The next recording starts empty.
  trace_spans().start(3);
  EXPECT_EQ(trace_spans().stop().dropped, 0);
}

TEST(TraceSpans, FromManyThreads) {
  constexpr std::int64_t kThreads = 4, kEach = 2000, kRoom = 5000;
  trace_spans().start(kRoom);
  std::vector<std::thread> threads;
  for (std::int64_t t = 0; t < kThreads; ++t)
    threads.emplace_back([t] {
      for (std::int64_t i = 0; i < kEach; ++i)
        const TraceSpan span(TraceTrack::kDisk, {"read", t * kEach + i});
    });
  for (std::thread& thread : threads) thread.join();
  TraceSpans::Recorded recorded = trace_spans().stop();
  EXPECT_EQ(recorded.spans.size(), kRoom);
  EXPECT_EQ(recorded.dropped, kThreads * kEach - kRoom);
  std::vector<bool> seen(kThreads * kEach);
  for (const Span& span : recorded.spans) {
    EXPECT_FALSE(seen.at(static_cast<std::size_t>(span.name.number)));
    seen[static_cast<std::size_t>(span.name.number)] = true;
  }
}

TEST(TraceSpans, OneRecordingAtATime) {
  trace_spans().start(1);
  EXPECT_THROW(trace_spans().start(1), InternalError);
  trace_spans().stop();
}

}  // namespace
}  // namespace longstride
