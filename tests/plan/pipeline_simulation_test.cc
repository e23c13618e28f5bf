// The simulated pipeline: small cases computed by hand, and the formulas of the books.
#include "plan/pipeline_simulation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace longstride {
namespace {

using Phase = PipelinePhase;

struct ChunkSeconds {
  double forward = 0, recompute = 0, backward = 0;
};

// A stage of `count` that recomputes all chunks but the last.
std::vector<PipelineTask> stage_tasks(const std::vector<ChunkSeconds>& chunks, std::int64_t stage,
                                      std::int64_t count) {
  const bool first = stage == 0, last = stage + 1 == count;
  std::vector<PipelineTask> tasks;
  const std::int64_t n = std::ssize(chunks), none = PipelineTask::kNone;
  for (std::int64_t c = 0; c < n; ++c)
    tasks.push_back({Phase::kForward, c, chunks[static_cast<std::size_t>(c)].forward,
                     first ? none : c, last ? none : c});
  for (std::int64_t c = n - 1; c >= 0; --c) {
    const ChunkSeconds& s = chunks[static_cast<std::size_t>(c)];
    if (c + 1 < n) tasks.push_back({Phase::kRecompute, c, s.recompute});
    tasks.push_back({Phase::kBackward, c, s.backward, last ? none : c, first ? none : c});
  }
  return tasks;
}

PipelineInput equal_stages(const std::vector<ChunkSeconds>& chunks, std::int64_t stages) {
  PipelineInput input;
  for (std::int64_t s = 0; s < stages; ++s) input.stages.push_back(stage_tasks(chunks, s, stages));
  input.chunk_bytes.assign(chunks.size(), 100);
  return input;
}

const PipelineEvent& event_of(const PipelineRun& run, std::int64_t stage, Phase phase,
                              std::int64_t chunk, std::int64_t sequence = 0) {
  for (const PipelineEvent& e : run.events)
    if (e.stage == stage && e.phase == phase && e.chunk == chunk && e.sequence == sequence)
      return e;
  throw InternalError("no such event");
}

TEST(PipelineSimulation, OneStageIsTheSumOfItsTasks) {
  PipelineInput input = equal_stages({{1, 1.5, 2}, {2, 2.5, 4}, {3, 3.5, 6}}, 1);
  input.sequences = 3;
  const PipelineRun run = simulate_pipeline(input);
  EXPECT_DOUBLE_EQ(run.seconds, 3 * (6 + 4 + 12));
  EXPECT_DOUBLE_EQ(run.idle_share(), 0);
  EXPECT_EQ(run.events.size(), 3u * 8);
  EXPECT_TRUE(run.boundary_bytes.empty());
}

// By hand. Stage 0 is forward until 2, stage 1 from 1 to 3 and back over chunk 1 until 5; it then
// recomputes, while stage 0 goes back.
TEST(PipelineSimulation, TwoStagesByHand) {
  const PipelineRun run = simulate_pipeline(equal_stages({{1, 1, 2}, {1, 1, 2}}, 2));
  EXPECT_DOUBLE_EQ(event_of(run, 1, Phase::kForward, 0).begin, 1);
  EXPECT_DOUBLE_EQ(event_of(run, 1, Phase::kBackward, 1).begin, 3);
  EXPECT_DOUBLE_EQ(event_of(run, 0, Phase::kBackward, 1).begin, 5);
  EXPECT_DOUBLE_EQ(event_of(run, 1, Phase::kRecompute, 0).begin, 5);
  EXPECT_DOUBLE_EQ(event_of(run, 1, Phase::kBackward, 0).begin, 6);
  // Its own recomputation is done when the gradient comes.
  EXPECT_DOUBLE_EQ(event_of(run, 0, Phase::kRecompute, 0).end, 8);
  EXPECT_DOUBLE_EQ(event_of(run, 0, Phase::kBackward, 0).begin, 8);
  EXPECT_DOUBLE_EQ(run.seconds, 10);
  EXPECT_DOUBLE_EQ(run.busy[0], 7);
  EXPECT_DOUBLE_EQ(run.idle_share(), 0.3);
  EXPECT_EQ(run.boundary_bytes, std::vector<std::int64_t>{4 * 100});
}

// A message of 100 bytes takes 0.5 + 100 / 200 s.
TEST(PipelineSimulation, MessagesTakeTime) {
  PipelineInput input = equal_stages({{2, 0, 2}}, 2);
  input.link = {.bytes_per_s = 200, .latency = 0.5};
  const PipelineRun run = simulate_pipeline(input);
  EXPECT_DOUBLE_EQ(event_of(run, 1, Phase::kForward, 0).begin, 3);
  EXPECT_DOUBLE_EQ(event_of(run, 0, Phase::kBackward, 0).begin, 8);
  EXPECT_DOUBLE_EQ(run.seconds, 10);
}

// Stage 1 takes 5 s for a chunk and stage 0 takes 1: what is sent ahead waits for its receiver, and
// travels while stage 1 computes only if that has asked for it.
TEST(PipelineSimulation, MessagesThatTravelAhead) {
  PipelineInput input;
  input.stages = {{{Phase::kForward, 0, 1, -1, 0}, {Phase::kForward, 1, 1, -1, 1}},
                  {{Phase::kForward, 0, 5, 0}, {Phase::kForward, 1, 5, 1}}};
  input.chunk_bytes = {100, 100};
  input.link = {.bytes_per_s = 100};
  EXPECT_DOUBLE_EQ(simulate_pipeline(input).seconds, 1 + 1 + 5 + 1 + 5);
  input.link.receive_buffers = 1;
  EXPECT_DOUBLE_EQ(simulate_pipeline(input).seconds, 1 + 1 + 5 + 5);
}

// With one buffer the next message is asked for when the last one is there; with two, messages
// follow one another.
TEST(PipelineSimulation, ReceivesWaitForABuffer) {
  PipelineInput input;
  input.stages.resize(2);
  for (std::int64_t c = 0; c < 5; ++c) {
    input.stages[0].push_back({Phase::kForward, c, 1, -1, c});
    input.stages[1].push_back({Phase::kForward, c, 4, c});
    input.chunk_bytes.push_back(c < 2 ? 100 : 900);
  }
  input.link = {.bytes_per_s = 100, .send_buffers = 5};
  // The first two arrive at 2 and 3. Chunk 2 is asked for at 2 or, with one buffer, at 6, when
  // chunk 1 is taken; the others follow it on the line.
  for (const std::int64_t buffers : {1, 2, 3}) {
    input.link.receive_buffers = buffers;
    const PipelineRun run = simulate_pipeline(input);
    const double second = buffers == 1 ? 6 : 3;
    EXPECT_DOUBLE_EQ(event_of(run, 1, Phase::kForward, 1).begin, 6) << buffers;
    EXPECT_DOUBLE_EQ(event_of(run, 1, Phase::kForward, 2).begin, second + 9) << buffers;
    EXPECT_DOUBLE_EQ(event_of(run, 1, Phase::kForward, 4).begin, second + 27) << buffers;
  }
}

// Those of both directions are asked for in the order of the tasks.
TEST(PipelineSimulation, AskingAheadChangesNoOrder) {
  for (const std::int64_t stages : {2, 3, 5})
    for (const std::int64_t buffers : {1, 2, 4}) {
      PipelineInput input = equal_stages({{1, 1, 2}, {2, 1, 3}, {1, 2, 2}}, stages);
      input.sequences = 2;
      input.link = {.bytes_per_s = 400, .latency = 0.1};
      const PipelineRun late = simulate_pipeline(input);
      input.link.receive_buffers = buffers;
      const PipelineRun ahead = simulate_pipeline(input);
      ASSERT_EQ(ahead.events.size(), late.events.size());
      for (std::size_t i = 0; i < ahead.events.size(); ++i) {
        EXPECT_EQ(ahead.events[i].chunk, late.events[i].chunk);
        EXPECT_LE(ahead.events[i].begin, late.events[i].begin + 1e-9);
      }
      EXPECT_EQ(ahead.boundary_bytes, late.boundary_bytes);
    }
}

// With two buffers the third message waits until the first is received.
TEST(PipelineSimulation, SendsWaitForABuffer) {
  PipelineInput input;
  input.stages.resize(2);
  for (std::int64_t c = 0; c < 4; ++c) {
    input.stages[0].push_back({Phase::kForward, c, 1, -1, c});
    input.stages[1].push_back({Phase::kForward, c, 10, c});
  }
  input.chunk_bytes.assign(4, 0);
  const PipelineRun run = simulate_pipeline(input);
  // Stage 1 asks for chunks 0 to 3 at 0 (there at 1), 11, 21 and 31.
  EXPECT_DOUBLE_EQ(event_of(run, 0, Phase::kForward, 2).begin, 2);
  EXPECT_DOUBLE_EQ(event_of(run, 0, Phase::kForward, 3).begin, 3);  // chunk 0 had left
  EXPECT_DOUBLE_EQ(event_of(run, 1, Phase::kForward, 3).begin, 31);
  input.link.send_buffers = 1;
  EXPECT_DOUBLE_EQ(event_of(simulate_pipeline(input), 0, Phase::kForward, 3).begin, 11);
}

// Of S stages and N equal chunks: (N + S - 1)(f + b) + (N - 1) r.
TEST(PipelineSimulation, EqualChunksGiveTheFormulaOfTheBooks) {
  const ChunkSeconds s{1, 0.75, 2.25};
  for (const std::int64_t stages : {1, 2, 3, 7, 8})
    for (const std::int64_t chunks : {1, 2, 5, 64})
      for (const double recompute : {0.0, s.recompute}) {
        const auto n = static_cast<double>(chunks), p = static_cast<double>(stages);
        std::vector<ChunkSeconds> list(static_cast<std::size_t>(chunks),
                                       {s.forward, recompute, s.backward});
        const PipelineRun run = simulate_pipeline(equal_stages(list, stages));
        const double seconds = (n + p - 1) * (s.forward + s.backward) + (n - 1) * recompute;
        EXPECT_NEAR(run.seconds, seconds, 1e-9) << stages << " x " << chunks;
        EXPECT_NEAR(run.idle_share(), (p - 1) * (s.forward + s.backward) / seconds, 1e-9);
        for (const std::int64_t bytes : run.boundary_bytes) EXPECT_EQ(bytes, 2 * chunks * 100);
      }
}

// Where chunks grow, those that fill and drain the pipeline in the middle are the long ones:
// (S - 1)(f + b) of the last chunk is idle.
TEST(PipelineSimulation, GrowingChunks) {
  for (const std::int64_t chunks : {16, 64, 256}) {
    std::vector<ChunkSeconds> list;
    double all = 0;
    for (std::int64_t c = 0; c < chunks; ++c) {
      const double cost = 8 + static_cast<double>(c);
      list.push_back({cost, cost, 2.5 * cost});
      all += (c + 1 < chunks ? 4.5 : 3.5) * cost;
    }
    const double last = list.back().forward + list.back().backward;
    const PipelineRun run = simulate_pipeline(equal_stages(list, 7));
    EXPECT_NEAR(run.seconds, all + 6 * last, 1e-9 * run.seconds) << chunks;
    EXPECT_NEAR(run.idle_share(), 6 * last / (all + 6 * last), 1e-9) << chunks;
  }
}

// The first stage is the last to be done with a sequence: only then does the next one begin, so
// that each fills and drains the pipeline.
TEST(PipelineSimulation, SequencesFollowEachOther) {
  PipelineInput input = equal_stages(std::vector<ChunkSeconds>(8, {1, 0, 2}), 4);
  const PipelineRun one = simulate_pipeline(input);
  input.sequences = 4;
  const PipelineRun four = simulate_pipeline(input);
  EXPECT_DOUBLE_EQ(four.seconds, 4 * one.seconds);
  EXPECT_DOUBLE_EQ(four.idle_share(), one.idle_share());
  EXPECT_DOUBLE_EQ(event_of(four, 0, Phase::kForward, 0, 1).begin, one.seconds);
  EXPECT_EQ(four.boundary_bytes[0], 4 * one.boundary_bytes[0]);
  for (std::int64_t q = 0; q + 1 < 4; ++q)
    EXPECT_GE(event_of(four, 3, Phase::kForward, 0, q + 1).begin,
              event_of(four, 3, Phase::kBackward, 0, q).end);
}

// Nothing begins before what it needs, and no stage does two things at once.
TEST(PipelineSimulation, OrderIsKept) {
  std::vector<ChunkSeconds> list;
  for (int c = 0; c < 12; ++c) list.push_back({1.0 + c % 3, 1.0, 2.0 + c % 5});
  PipelineInput input = equal_stages(list, 5);
  for (std::size_t s = 0; s < 5; ++s)
    for (PipelineTask& task : input.stages[s]) task.seconds *= 1 + 0.3 * static_cast<double>(s % 2);
  input.link = {.bytes_per_s = 1000, .latency = 0.01};
  input.sequences = 2;
  const PipelineRun run = simulate_pipeline(input);
  double busy = 0;
  for (std::size_t i = 0; i < run.events.size(); ++i) {
    const PipelineEvent& e = run.events[i];
    busy += e.end - e.begin;
    double earliest = 0;
    if (i > 0 && run.events[i - 1].stage == e.stage) earliest = run.events[i - 1].end;
    std::int64_t other = -1;  // the stage whose message it needs
    if (e.phase == Phase::kForward) other = e.stage - 1;
    if (e.phase == Phase::kBackward && e.stage < 4) other = e.stage + 1;
    if (other >= 0)
      earliest = std::max(earliest, event_of(run, other, e.phase, e.chunk, e.sequence).end + 0.11);
    EXPECT_GE(e.begin, earliest - 1e-9);
  }
  EXPECT_NEAR(busy, std::accumulate(run.busy.begin(), run.busy.end(), 0.0), 1e-9);
}

TEST(PipelineSimulation, MessagesThatDoNotMatchAreNoticed) {
  PipelineInput input = equal_stages({{1, 1, 1}, {1, 1, 1}}, 2);
  PipelineInput lost = input;
  lost.stages[0].front().sends = PipelineTask::kNone;
  EXPECT_THROW(simulate_pipeline(lost), InternalError);
  PipelineInput more = input;
  more.stages[1].front().receives = PipelineTask::kNone;
  EXPECT_THROW(simulate_pipeline(more), InternalError);
  input.stages[1].back().receives = 0;  // the last stage has nobody after it
  EXPECT_THROW(simulate_pipeline(input), InternalError);
}

// ---- tasks of schedules ----

struct StageCase {
  Stage stage;
  std::int64_t chunks = 3, keep = 1;
  bool sparse = false;

  std::vector<PipelineTask> tasks() const {
    ScheduleOptions options;
    options.windows = {0, 0};
    options.keep_chunks = keep;
    options.stage = stage;
    options.stage.trains_below = stage.receives;
    if (sparse) options.sparse = {{}, {4, 4}};
    if (stage.receives)
      options.across_episodes.assign(static_cast<std::size_t>(2 * chunks),
                                     Retention{Retained::kInput});
    const StepSchedule schedule = make_step_schedule({chunks * 256, 256, 128, {0}}, options);
    std::size_t count = 0;
    for (const Episode& episode : schedule.episodes) count += episode.tasks.size();
    return pipeline_tasks(schedule, stage, std::vector<double>(count, 0.0));
  }
};

TEST(PipelineTasks, AreThoseOfAStage) {
  for (const std::int64_t count : {1, 2, 3})
    for (std::int64_t s = 0; s < count; ++s) {
      const StageCase c{{s * 2, s > 0, s + 1 < count}};
      EXPECT_EQ(c.tasks(), stage_tasks(std::vector<ChunkSeconds>(3), s, count))
          << "stage " << s << " of " << count;
    }
}

TEST(PipelineTasks, HaveAllTheSeconds) {
  ScheduleOptions options;
  options.windows = {0};
  const StepSchedule schedule = make_step_schedule({1280, 256, 128, {0}}, options);
  std::vector<double> seconds;
  for (const Episode& episode : schedule.episodes)
    for (std::size_t i = 0; i < episode.tasks.size(); ++i)
      seconds.push_back(static_cast<double>(seconds.size()));
  double sum = 0;
  for (const PipelineTask& task : pipeline_tasks(schedule, {}, seconds)) sum += task.seconds;
  EXPECT_DOUBLE_EQ(sum, std::accumulate(seconds.begin(), seconds.end(), 0.0));
  seconds.push_back(1);
  EXPECT_THROW(pipeline_tasks(schedule, {}, seconds), InternalError);
}

// Whatever the schedule: every message that a stage sends is received by the next one, in order.
TEST(PipelineTasks, OfNeighboursMatch) {
  for (const bool sparse : {false, true})
    for (const std::int64_t chunks : {1, 2, 5, 6})
      for (const std::int64_t keep : {1, 2}) {
        PipelineInput input;
        for (std::int64_t s = 0; s < 3; ++s) {
          const StageCase c{{s * 2, s > 0, s < 2}, chunks, keep, sparse};
          input.stages.push_back(c.tasks());
          for (PipelineTask& task : input.stages.back()) task.seconds = 1;
        }
        input.chunk_bytes.assign(static_cast<std::size_t>(chunks), 10);
        const PipelineRun run = simulate_pipeline(input);
        EXPECT_EQ(run.boundary_bytes, (std::vector<std::int64_t>(2, 2 * chunks * 10)))
            << chunks << " chunks, " << keep << (sparse ? " sparse" : "");
      }
}

// Whichever stage was measured, the others have its seconds.
TEST(PipelineTasks, EqualStages) {
  const std::vector<ChunkSeconds> chunks = {{1, 2, 3}, {4, 5, 6}, {7, 8, 9}};
  for (const std::int64_t measured : {0, 1, 2}) {
    const auto all = longstride::equal_stages(stage_tasks(chunks, measured, 3),
                                              {measured, measured > 0, measured < 2}, 4);
    ASSERT_EQ(all.size(), 4u);
    for (std::int64_t s = 0; s < 4; ++s)
      EXPECT_EQ(all[static_cast<std::size_t>(s)], stage_tasks(chunks, s, 4)) << measured;
  }
  // Pairs of a stage between others.
  const StageCase pairs{{2, true, true}, 6, 1, true};
  PipelineInput input;
  input.stages = longstride::equal_stages(pairs.tasks(), pairs.stage, 3);
  input.chunk_bytes.assign(6, 1);
  EXPECT_EQ(simulate_pipeline(input).boundary_bytes, (std::vector<std::int64_t>(2, 12)));
}

}  // namespace
}  // namespace longstride
