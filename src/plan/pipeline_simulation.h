// What the stages of a pipeline do when, known before anything runs: chunks flow through them one
// way and their gradients the other. A pure function of how long each task takes alone.
//
// A stage runs its tasks in their order, sequence by sequence. It sends without waiting, while it
// has a buffer for what is on its way, and waits for what it receives, which it asks for ahead
// while it has a buffer for it, as train/linked_stages.h does; before its next sequence all that it
// has sent is gone. Every boundary between stages has a line of its own in each direction.
#pragma once

#include <cstdint>
#include <vector>

#include "schedule/step_schedule.h"

namespace longstride {

enum class PipelinePhase : std::uint8_t { kForward, kRecompute, kBackward };
constexpr int kPipelinePhases = 3;
const char* name_of(PipelinePhase phase);

// Some work of a stage, with at most one message before and one after it. What a forward task
// receives comes from the stage before and goes to the one after; gradients go the other way.
struct PipelineTask {
  static constexpr std::int64_t kNone = -1;
  PipelinePhase phase = PipelinePhase::kForward;
  std::int64_t chunk = 0;
  double seconds = 0;
  std::int64_t receives = kNone, sends = kNone;  // the chunk that the message is of
  bool operator==(const PipelineTask&) const = default;
};

struct PipelineLink {
  double bytes_per_s = 0;  // 0: messages take no time beside the latency
  double latency = 0;      // seconds of every message
  std::int64_t send_buffers = 2;
  // Messages of a sequence that a stage asks for ahead; a message travels once it is sent and asked
  // for. 0: a stage asks for one when it needs it.
  std::int64_t receive_buffers = 0;

  // Without the latency.
  double seconds_of(double bytes) const { return bytes_per_s > 0 ? bytes / bytes_per_s : 0; }
};

struct PipelineInput {
  std::vector<std::vector<PipelineTask>> stages;  // of one sequence, in their order
  std::vector<std::int64_t> chunk_bytes;          // of a message, by chunk
  PipelineLink link;
  std::int64_t sequences = 1;
};

struct PipelineEvent {
  std::int64_t stage = 0, sequence = 0;
  PipelinePhase phase = PipelinePhase::kForward;
  std::int64_t chunk = 0;
  double begin = 0, end = 0;
};

struct PipelineRun {
  std::vector<PipelineEvent> events;  // stage by stage, each in the order of time
  double seconds = 0;                 // until the last stage is done
  std::vector<double> busy;           // seconds, by stage
  // By boundary, those of both directions together.
  std::vector<std::int64_t> boundary_bytes;

  std::int64_t stages() const { return std::ssize(busy); }
  double idle_share(std::int64_t stage) const;
  double idle_share() const;  // of all stages together
};

// Fails if the stages wait for each other forever, or for a message that nobody sends.
PipelineRun simulate_pipeline(const PipelineInput& input);

// For every task of a stage's schedule, whether a task of the pipeline begins with it.
std::vector<bool> pipeline_cuts(const StepSchedule& schedule, const Stage& stage);

// The tasks of a stage's schedule, which has a backward pass, cut where messages come and go; the
// seconds are those of its tasks. Chunks that go forward in pairs are cut at their messages alone.
std::vector<PipelineTask> pipeline_tasks(const StepSchedule& schedule, const Stage& stage,
                                         const std::vector<double>& task_seconds);

// A pipeline of so many stages that all take as long as this one, whose tasks these are. Chunks
// must not go forward in pairs, unless the stage is between others: its messages are then all
// known.
std::vector<std::vector<PipelineTask>> equal_stages(const std::vector<PipelineTask>& tasks,
                                                    const Stage& stage, std::int64_t stages);

}  // namespace longstride
