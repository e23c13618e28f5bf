#include "observe/trace_file.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/files.h"
#include "observe/tracer.h"
#include "tests/data/temp_directory.h"
#include "tests/observe/trace_json.h"

namespace longstride {
namespace {

using Names = std::vector<std::string>;
using Kind = Activity::Kind;

ParsedTrace written(const Trace& trace) {
  const TempDirectory temp;
  write_trace(temp.path() / "t.json", trace);
  return parse_trace(read_text(temp.path() / "t.json"));
}

Span span(TraceTrack track, const char* what, std::uint64_t begin, std::uint64_t end) {
  return {track, {what}, begin, end};
}

TEST(TraceFile, NothingIsATraceToo) {
  const ParsedTrace trace = written({"nothing", {}, {}});
  EXPECT_EQ(trace.tracks.size(), static_cast<std::size_t>(kTraceTracks));
  for (const auto& [name, events] : trace.tracks) EXPECT_TRUE(events.empty()) << name;
}

TEST(TraceFile, TimesToTheNanosecond) {
  // Far beyond the nanoseconds that a double holds exactly; times are relative to the first event.
  constexpr std::uint64_t kStart = std::uint64_t{1} << 60;
  const ParsedTrace trace =
      written({"t",
               {{span(TraceTrack::kStep, "b", kStart + 1'000'000'007, kStart + 1'000'001'009),
                 span(TraceTrack::kStep, "a", kStart, kStart + 1)},
                0},
               {}});
  EXPECT_EQ(trace.names("step"), (Names{"a", "b"}));
  EXPECT_EQ(trace.event("step", "a").begin_ns, 0);
  EXPECT_EQ(trace.event("step", "a").end_ns, 1);
  EXPECT_EQ(trace.event("step", "b").begin_ns, 1'000'000'007);
  EXPECT_EQ(trace.event("step", "b").end_ns, 1'000'001'009);
}

TEST(TraceFile, PutsWhatADeviceDidWhereItBelongs) {
  // Queue 7 computes; its own copies do not overlap compute.
  const ParsedTrace trace = written({"t",
                                     {{span(TraceTrack::kStep, "step", 5, 100)}, 0},
                                     {{{Kind::kFill, "fill", 7, 10, 11, 64},
                                       {Kind::kCopyFromHost, "small", 7, 11, 12, 8},
                                       {Kind::kCopyFromHost, "in", 9, 11, 30, 4096},
                                       {Kind::kKernel, "k", 7, 12, 40},
                                       {Kind::kKernel, "other", 8, 41, 42},
                                       {Kind::kCopyToHost, "out", 10, 20, 35, 512},
                                       {Kind::kCopy, "within", 10, 36, 37, 512}},
                                      0}});
  EXPECT_EQ(trace.names("compute"), (Names{"fill", "small", "k", "within", "other"}));
  EXPECT_EQ(trace.names("from host"), (Names{"in"}));
  EXPECT_EQ(trace.names("to host"), (Names{"out"}));
  EXPECT_EQ(trace.names("step"), (Names{"step"}));
  EXPECT_EQ(trace.event("from host", "in").args.at("bytes"), 4096);
  EXPECT_EQ(trace.event("from host", "in").begin_ns, 6);  // one clock for both
  EXPECT_TRUE(trace.event("compute", "k").args.empty());
}

TEST(TraceFile, OverlappingEventsGetRowsOfTheirOwn) {
  const ParsedTrace trace =
      written({"t",
               {{span(TraceTrack::kDisk, "a", 0, 10), span(TraceTrack::kDisk, "b", 5, 15),
                 span(TraceTrack::kDisk, "c", 8, 18), span(TraceTrack::kDisk, "within b", 12, 15),
                 span(TraceTrack::kDisk, "d", 10, 20), span(TraceTrack::kDisk, "e", 20, 20)},
                0},
               {}});
  EXPECT_EQ(trace.names("disk"), (Names{"a", "d", "within b", "e"}));
  EXPECT_EQ(trace.names("disk 2"), (Names{"b"}));
  EXPECT_EQ(trace.names("disk 3"), (Names{"c"}));
}

TEST(TraceFile, AnyNameIsValidJson) {
  const std::string longest(5000, 'x');
  const ParsedTrace trace = written({"a \"title\"\n",
                                     {},
                                     {{{Kind::kKernel, "f<\"a\\b\">\t\x01", 1, 1, 2},
                                       {Kind::kKernel, "\xff\xfe", 1, 2, 3},
                                       {Kind::kKernel, longest, 1, 3, 4}},
                                      0}});
  ASSERT_EQ(trace.tracks.at("compute").size(), 3u);
  EXPECT_EQ(trace.names("compute")[0], "f<\"a\\b\">\t\x01");
  EXPECT_EQ(trace.names("compute")[2], longest.substr(0, 120));
}

TEST(TraceFile, SaysWhatWasDropped) {
  const ParsedTrace trace = written({"t", {{}, 3}, {{}, 4}});
  EXPECT_EQ(trace.other.at("dropped_spans"), 3);
  EXPECT_EQ(trace.other.at("dropped_device_records"), 4);
}

TEST(TraceFile, ManyEventsInLittleSpace) {
  Trace trace{"t", {}, {}};
  constexpr std::uint64_t kMany = 200'000;
  for (std::uint64_t i = 0; i < kMany; ++i)
    trace.device.activities.push_back(
        {Kind::kKernel, i % 2 == 0 ? "even_kernel" : "odd_kernel", 1, 1000 * i, 1000 * i + 900});
  const TempDirectory temp;
  write_trace(temp.path() / "t.json", trace);
  EXPECT_LT(std::filesystem::file_size(temp.path() / "t.json"), kMany * 90);
  EXPECT_EQ(parse_trace(read_text(temp.path() / "t.json")).tracks.at("compute").size(), kMany);
}

TEST(Tracer, RefusesAFileItCouldNotWrite) {
  const TempDirectory temp;
  EXPECT_TRUE(says(error_of([&] { Tracer{temp.path()}; }), {"not a regular file"}));
  EXPECT_TRUE(says(error_of([&] { Tracer{"/dev/null"}; }), {"/dev/null", "not a regular file"}));
  EXPECT_TRUE(says(error_of([&] { Tracer{temp.path() / "none" / "t.json"}; }),
                   {"cannot create", "none/t.json", "No such file"}));
  EXPECT_TRUE(std::filesystem::is_empty(temp.path()));
}

TEST(Tracer, LeavesAnOldTraceUntilTheNewOneIsWritten) {
  const TempDirectory temp;
  const std::filesystem::path file = temp.path() / "t.json";
  write_trace(file, {"old", {}, {}});
  const std::string old = read_text(file);
  const std::unique_ptr<Device> device = make_cpu_device();
  {
    Tracer tracer(file);
    tracer.start(*device, "test");
    EXPECT_TRUE(tracer.running());
  }
  EXPECT_FALSE(trace_spans().on());
  EXPECT_EQ(read_text(file), old);
  Tracer tracer(file);
  tracer.start(*device, "test");
  { const TraceSpan read(TraceTrack::kDisk, {.what = "read", .bytes = 7}); }
  tracer.finish();
  EXPECT_FALSE(tracer.running());
  const ParsedTrace trace = parse_trace(read_text(file));
  EXPECT_EQ(trace.event("disk", "read").args.at("bytes"), 7);
  EXPECT_EQ(trace.other.at("title"), "longstride test on " + device->name());
}

// The CPU's mover copies synchronously, so its spans are the copies.
TEST(Tracer, ShowsCopiesOfTheCpu) {
  const TempDirectory temp;
  const std::unique_ptr<Device> device = make_cpu_device();
  const std::unique_ptr<Mover> mover = device->make_mover();
  std::byte from[64] = {}, to[64] = {};
  const Mover::Copy copies[] = {{to, from, 16}, {to + 16, from + 16, 32}};
  Tracer tracer(temp.path() / "t.json");
  tracer.start(*device, "test");
  mover->copy(Lane::kFromHost, copies);
  mover->copy(Lane::kToHost, std::span(copies).first(1));
  tracer.finish();
  const ParsedTrace trace = parse_trace(read_text(temp.path() / "t.json"));
  EXPECT_EQ(trace.event("from host", "copy").args.at("bytes"), 48);
  EXPECT_EQ(trace.event("to host", "copy").args.at("bytes"), 16);
}

}  // namespace
}  // namespace longstride
