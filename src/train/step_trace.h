// The trace spans of a sequence: phases that contain chunks that contain tasks
// (base/trace_spans.h).
#pragma once

#include <optional>

#include "base/trace_spans.h"
#include "device/device.h"
#include "schedule/step_schedule.h"

namespace longstride {

// Track for calls of operations: on a synchronous device they are the compute itself, on an
// asynchronous one they only issue it.
inline TraceTrack compute_track(const Stream& stream) {
  return stream.runs_when_called() ? TraceTrack::kCompute : TraceTrack::kStep;
}

// Traces one sequence. Not thread-safe: the thread that runs the step owns it.
class StepTrace {
 public:
  // `receives`: the stage gets its chunks from another.
  explicit StepTrace(const Stream& stream, bool receives = false)
      : track_(compute_track(stream)), receives_(receives) {}

  // Begins an episode, which lasts until the next one or wait().
  void enter(const Episode& episode);
  // Span of a task of the episode, for as long as the result lives.
  TraceSpan task(const Task& task) const;
  // All tasks have been issued; the rest of the time is waiting for them.
  void wait();

 private:
  TraceTrack track_;
  bool receives_;
  std::optional<EpisodeKind> kind_;
  // Destroyed in the reverse order.
  std::optional<TraceSpan> phase_, chunk_;
};

}  // namespace longstride
