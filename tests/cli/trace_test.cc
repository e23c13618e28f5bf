// --trace of longstride train and longstride bench step.
#include <csignal>

#include "tests/cli/run_directory.h"
#include "tests/observe/trace_json.h"

namespace longstride {
namespace {

using Strings = std::vector<std::string>;

ProgramResult bench_step(const RunDirectory& run, const Strings& more) {
  Strings words = {"bench", "step",     "--preset", "tiny-llama", "--chunk", "64",        "--page",
                   "16",    "--device", "cpu",      "--json",     "b.json",  "--context", "256"};
  words.insert(words.end(), more.begin(), more.end());
  return run.run(words);
}

// Number of the track's events whose name begins with `start`.
std::ptrdiff_t count(const ParsedTrace& trace, const std::string& track, const std::string& start) {
  return std::ranges::count_if(trace.tracks.at(track),
                               [&](const TraceEvent& e) { return e.name.starts_with(start); });
}

// tiny-llama has 2 layers; 4 chunks, of which the last is kept.
constexpr std::ptrdiff_t kTasks = 4 * (1 + 2) + 3 * (1 + 2) + 4 * (1 + 2 + 1);

TEST(TraceBenchStep, TheLastRun) {
  const RunDirectory run;
  ASSERT_TRUE(ended(bench_step(run, {"--trace", "t.json", "--repeat", "3"}), 0,
                    {"trace: ", "t.json; open it at ui.perfetto.dev",
                     "the figures are those of the traced run"}));
  EXPECT_EQ(run.names(), (std::set<std::string>{"b.json", "run.toml", "t.json", "tokens.bin"}));
  const ParsedTrace trace = parse_trace(run.read("t.json"));
  EXPECT_EQ(std::ssize(trace.tracks.at("compute")), kTasks);
  EXPECT_EQ(std::ssize(trace.tracks.at("step")), 3 + 7 + 1);
  EXPECT_TRUE(says(trace.other.at("title").get<std::string>(), {"bench step tiny-llama 256 on "}));
  EXPECT_EQ(trace.other.at("dropped_spans"), 0);
  // The reported time is that of the run in the trace.
  const Json json = Json::parse(run.read("b.json"));
  EXPECT_TRUE(json.at("traced").get<bool>());
  const double traced = 1e-9 * static_cast<double>(trace.event("step", "wait").end_ns -
                                                   trace.event("step", "forward").begin_ns);
  EXPECT_LE(traced, json.at("seconds").at("total").get<double>());
}

TEST(TraceTrain, TheFirstSteps) {
  const RunDirectory run, plain;
  ASSERT_TRUE(ended(plain.train(), 0));
  ASSERT_TRUE(ended(run.train({"--trace", "t.json"}), 0, {"trace: ", "saved out/step-6"}));
  const ParsedTrace trace = parse_trace(run.read("t.json"));
  EXPECT_EQ(count(trace, "step", "step "), 2);
  EXPECT_EQ(count(trace, "step", "data 0"), 2);
  EXPECT_EQ(count(trace, "step", "sequence 0"), 2);
  EXPECT_EQ(count(trace, "compute", "update"), 2);
  EXPECT_EQ(std::ssize(trace.tracks.at("compute")), 2 * (kTasks + 1));
  EXPECT_LE(trace.event("step", "step 1").end_ns, trace.event("step", "step 2").begin_ns);
  EXPECT_TRUE(says(trace.other.at("title").get<std::string>(), {"train run.toml on "}));
  // Tracing changes no result.
  EXPECT_TRUE(run.read("out/step-6/model.safetensors") ==
              plain.read("out/step-6/model.safetensors"));
}

TEST(TraceTrain, AsManyStepsAsAskedForFromWhereTheRunGoesOn) {
  const RunDirectory run;
  ASSERT_TRUE(ended(run.train({"--training.steps=3"}), 0));
  ASSERT_TRUE(ended(run.train({"--resume", "--trace=t.json", "--trace-steps=1"}), 0));
  const ParsedTrace one = parse_trace(run.read("t.json"));
  EXPECT_EQ(count(one, "step", "step "), 1);
  EXPECT_EQ(count(one, "step", "step 4"), 1);
  // More steps than there are: traces all, and the save between them.
  const RunDirectory all;
  ASSERT_TRUE(ended(all.train({"--trace", "t.json", "--trace-steps", "100"}), 0));
  const ParsedTrace six = parse_trace(all.read("t.json"));
  EXPECT_EQ(count(six, "step", "step "), 6);
  EXPECT_EQ(count(six, "step", "save 3"), 1);
}

TEST(TraceTrain, NoStepIsLeft) {
  const RunDirectory run;
  ASSERT_TRUE(ended(run.train(), 0));
  ASSERT_TRUE(ended(run.train({"--resume", "--trace", "t.json"}), 0,
                    {"no step is left to run, so t.json is not written"}));
  EXPECT_FALSE(run.names().contains("t.json"));
}

TEST(TraceTrain, AStoppedRunLeavesWhatItDid) {
  const RunDirectory run;
  Program program(RunDirectory::train_arguments({"--training.steps=100000", "--checkpoint.every=0",
                                                 "--trace=t.json", "--trace-steps=100000"}),
                  {.directory = run.path()});
  while (program.running() && run.metrics().size() < 3)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  program.send(SIGTERM);
  ASSERT_TRUE(ended(program.wait(), 128 + SIGTERM, {"trace: ", "stopped by signal"}));
  EXPECT_GE(count(parse_trace(run.read("t.json")), "step", "step "), 3);
}

TEST(Trace, APathThatCannotBeWrittenIsRefusedBeforeAnyWork) {
  const RunDirectory run;
  for (const char* path : {"nowhere/t.json", "run.toml/t.json", ".", "/dev/null"}) {
    EXPECT_TRUE(refused(run.train({"--trace", path}), {path})) << path;
    EXPECT_TRUE(refused(bench_step(run, {"--trace", path}), {path})) << path;
  }
  EXPECT_TRUE(run.nothing_written());
  EXPECT_EQ(run.names(), (std::set<std::string>{"run.toml", "tokens.bin"}));
}

TEST(Trace, OptionsThatMakeNoSense) {
  const RunDirectory run;
  EXPECT_TRUE(ended(run.train({"--trace-steps", "3"}), 2, {"--trace"}));
  EXPECT_TRUE(ended(run.train({"--trace", "t.json", "--trace-steps", "0"}), 2, {"--trace-steps"}));
  EXPECT_TRUE(run.nothing_written());
}

// The disk fills up after the run began: the run continues without its trace.
TEST(TraceTrain, GoesOnWithoutATraceThatCannotBeWrittenInTheEnd) {
  const RunDirectory run;
  RunOptions small;
  small.file_bytes = 8192;
  ASSERT_TRUE(ended(run.train({"--trace", "t.json", "--training.steps=4", "--checkpoint.every=0",
                               "--trace-steps=3"},
                              small),
                    2, {"the run goes on without it", "step 4/4"}));  // the save fails later
  EXPECT_FALSE(run.names().contains("t.json"));
}

}  // namespace
}  // namespace longstride
