// One trace of several ranks, which are threads.
#include "observe/rank_trace.h"

#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <set>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "comm/control.h"
#include "comm/thread_link.h"
#include "tests/data/temp_directory.h"

namespace longstride {
namespace {

void run(int ranks, const std::function<void(comm::MessageLink&)>& body) {
  comm::ThreadHub hub(ranks);
  for (const std::exception_ptr& why : comm::run_thread_ranks(hub, {.host = "here"}, body))
    if (why) std::rethrow_exception(why);
}

// A span of `what` at a time of rank 0's clock, on a rank whose clock differs.
Trace trace_of(int rank, std::int64_t begin, std::int64_t offset) {
  const auto at = static_cast<std::uint64_t>(begin - offset);
  return {
      rank == 0 ? "the title" : "", {{{TraceTrack::kStep, {"work", rank}, at, at + 1500}}, 1}, {}};
}

TEST(RankTrace, ClocksOfOneHostAreOne) {
  run(3, [](comm::MessageLink& link) { EXPECT_EQ(measure_clock_offset(link), 0); });
}

TEST(RankTrace, MeasuresAnotherClock) {
  constexpr std::int64_t kLate = 5'000'000'000;
  run(3, [&](comm::MessageLink& link) {
    const std::int64_t late = kLate * link.rank();
    const std::int64_t offset = measure_clock_offset(
        link, [&] { return trace_clock_ns() + static_cast<std::uint64_t>(kLate * 4 - late); });
    EXPECT_NEAR(static_cast<double>(offset), static_cast<double>(late), 1e8);
    EXPECT_EQ(offset == 0, link.rank() == 0);
  });
}

TEST(RankTrace, ARowForEveryRankByOneClock) {
  const TempDirectory temp;
  const std::filesystem::path path = temp.path() / "t.json";
  constexpr std::int64_t kBegin = std::int64_t{1} << 60, kOffset = 123'456'789;
  run(3, [&](comm::MessageLink& link) {
    const int rank = link.rank();
    // The last one begins first.
    const TraceCounts counts =
        write_rank_traces(link, path, trace_of(rank, kBegin - 1000 * rank, kOffset * rank),
                          kOffset * rank, [&] { EXPECT_EQ(rank, 0); });
    EXPECT_EQ(counts.spans, 3);
    EXPECT_EQ(counts.dropped_spans, 3);
  });
  const std::string text = read_text(path);
  EXPECT_TRUE(begins_as_trace(text));
  const Json json = Json::parse(text);
  EXPECT_EQ(json.at("otherData").at("title"), "the title");
  EXPECT_EQ(json.at("otherData").at("dropped_spans"), 3);
  std::map<int, std::string> names;
  std::map<int, double> begins;
  for (const Json& event : json.at("traceEvents")) {
    if (event.at("name") == "process_name") names[event.at("pid")] = event.at("args").at("name");
    if (event.at("ph") != "X") continue;
    EXPECT_EQ(event.at("dur"), 1.5);
    begins[event.at("pid")] = event.at("ts");
  }
  EXPECT_EQ(names, (std::map<int, std::string>{
                       {1, "rank 0 on here"}, {2, "rank 1 on here"}, {3, "rank 2 on here"}}));
  EXPECT_EQ(begins, (std::map<int, double>{{1, 2}, {2, 1}, {3, 0}}));
}

TEST(RankTrace, RanksWithoutEventsHaveRowsToo) {
  const TempDirectory temp;
  const std::filesystem::path path = temp.path() / "t.json";
  run(2, [&](comm::MessageLink& link) { write_rank_traces(link, path, {"none", {}, {}}, 0); });
  EXPECT_EQ(Json::parse(read_text(path)).at("traceEvents").size(), 2 * (2 + 2 * kTraceTracks));
}

// Far more than a piece of text; then the ranks still agree on something.
TEST(RankTrace, AFileThatCannotBeWrittenLeavesTheLinkUsable) {
  const TempDirectory temp;
  std::atomic<int> errors = 0;
  run(3, [&](comm::MessageLink& link) {
    Trace trace{"many", {}, {}};
    for (std::uint64_t i = 0; i < 60'000; ++i)
      trace.host.spans.push_back({TraceTrack::kStep, {"work", 7}, 10 * i, 10 * i + 5});
    const auto fails = [&](const std::filesystem::path& path, const std::function<void()>& check) {
      try {
        write_rank_traces(link, path, trace, 0, check);
      } catch (const Error&) {
        EXPECT_EQ(link.rank(), 0);
        ++errors;
      }
      EXPECT_EQ(comm::gather(link, link.rank()), (std::vector<int>{0, 1, 2}));
    };
    fails(temp.path() / "none" / "t.json", nullptr);
    fails(temp.path() / "t.json", [] { throw Error("another file is there", "move it"); });
  });
  EXPECT_EQ(errors, 2);
  EXPECT_TRUE(std::filesystem::is_empty(temp.path()));
}

}  // namespace
}  // namespace longstride
