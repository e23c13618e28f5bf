// The trace of a step has every task once, inside its chunk and phase.
#include "train/step_trace.h"

#include <gtest/gtest.h>

#include <map>

#include "tests/train/step_fixture.h"

namespace longstride {
namespace {

RandomCase small_case() {
  Random random(1, 2);
  RandomCase c;
  c.config = random_config(random);
  c.config.layers = 2;
  c.config.windows = {0, 20};
  fill_sequence(c, random, 16 * 5 - 3, 1, 0);  // 5 chunks of 16
  return c;
}

std::multimap<std::string, Span> by_name(const std::vector<Span>& spans, TraceTrack track) {
  std::multimap<std::string, Span> found;
  for (const Span& span : spans)
    if (span.track == track) found.emplace(text_of(span.name), span);
  return found;
}

bool inside(const Span& inner, const Span& outer) {
  return outer.begin_ns <= inner.begin_ns && inner.end_ns <= outer.end_ns;
}

// Chunks 0, 1 and 2 are recomputed, 3 and 4 kept: each task and the chunk that contains it.
std::map<std::string, std::string> expected_tasks() {
  std::map<std::string, std::string> tasks;
  for (int c = 0; c < 5; ++c) {
    const std::string chunk = fmt::format(" chunk {}", c), kept = "kept chunk 3";
    const std::string forward = c < 3 ? "forward" + chunk : kept,
                      backward = c < 3 ? "backward" + chunk : kept;
    tasks["embed" + chunk] = forward;
    tasks["head" + chunk] = tasks["embed backward" + chunk] = backward;
    if (c < 3) tasks["embed again" + chunk] = backward;
    for (const char* layer : {" layer 0", " layer 1"}) {
      tasks["forward" + chunk + layer] = forward;
      tasks["backward" + chunk + layer] = backward;
      if (c < 3) tasks["recompute" + chunk + layer] = backward;
    }
  }
  return tasks;
}

TEST(StepTrace, EveryTaskOnceWhereItBelongs) {
  const std::unique_ptr<Device> device = make_cpu_device();
  const RandomCase c = small_case();
  const auto weights = random_weights(*device, c.config, 1);
  trace_spans().start();
  run_step(*device, c, *weights, 16, 16, 2);
  const TraceSpans::Recorded recorded = trace_spans().stop();
  EXPECT_EQ(recorded.dropped, 0);

  // On the CPU calls are the compute itself.
  const auto ranges = by_name(recorded.spans, TraceTrack::kStep),
             tasks = by_name(recorded.spans, TraceTrack::kCompute);
  const std::map<std::string, std::string> expected = expected_tasks();
  EXPECT_EQ(tasks.size(), expected.size());
  for (const auto& [task, chunk] : expected) {
    ASSERT_EQ(tasks.count(task), 1u) << task;
    ASSERT_EQ(ranges.count(chunk), 1u) << chunk;
    EXPECT_TRUE(inside(tasks.find(task)->second, ranges.find(chunk)->second)) << task;
  }
  // Three phases, seven episodes, and the wait for the device.
  EXPECT_EQ(ranges.size(), 3u + 7u + 1u);
  for (const auto& [name, span] : ranges) {
    const std::string phase = name.substr(0, name.find(' '));
    ASSERT_EQ(ranges.count(phase), 1u) << phase;
    EXPECT_TRUE(inside(span, ranges.find(phase)->second)) << name;
  }
  EXPECT_LE(ranges.find("forward")->second.end_ns, ranges.find("kept")->second.begin_ns);
  EXPECT_LE(ranges.find("kept")->second.end_ns, ranges.find("backward")->second.begin_ns);
  EXPECT_LE(ranges.find("backward")->second.end_ns, ranges.find("wait")->second.begin_ns);
}

TEST(StepTrace, CallsOfADeviceThatComputesOnItsOwnAreAskingOnly) {
  EXPECT_EQ(compute_track(Stream(DeviceKind::kCpu)), TraceTrack::kCompute);
  EXPECT_EQ(compute_track(Stream(DeviceKind::kCuda)), TraceTrack::kStep);
}

// The trace of an interrupted step is still valid.
TEST(StepTrace, EndsWhereAnInterruptionEndsIt) {
  const std::unique_ptr<Device> device = make_cpu_device();
  const RandomCase c = small_case();
  const auto weights = random_weights(*device, c.config, 1);
  ParameterSet gradients(*device, c.config, DType::kF32, "gradients");
  StepRunner runner =
      planned_runner(c.config, *weights, gradients, choose_numerics(*device, c.config, 16, 16),
                     {static_cast<std::int64_t>(c.tokens.size())});
  trace_spans().start();
  int asked = 0;
  EXPECT_THROW(
      runner.run({c.tokens, c.targets, c.document_starts}, 1, [&] { return ++asked == 7; }),
      Interrupted);
  const TraceSpans::Recorded recorded = trace_spans().stop();
  EXPECT_EQ(by_name(recorded.spans, TraceTrack::kCompute).size(), 2u * 3u);
  const auto ranges = by_name(recorded.spans, TraceTrack::kStep);
  EXPECT_EQ(ranges.count("forward"), 1u);
  EXPECT_EQ(ranges.count("forward chunk 2"), 1u);
  EXPECT_EQ(ranges.size(), 4u);
}

}  // namespace
}  // namespace longstride
