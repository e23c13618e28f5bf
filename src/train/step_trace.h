// The ranges of a sequence in a trace: phases, in them chunks, in them tasks (base/trace_spans.h).
#pragma once

#include <optional>

#include "base/trace_spans.h"
#include "device/device.h"
#include "schedule/step_schedule.h"

namespace longstride {

// Where calls of operations belong: on a device that runs them when they are called they are the
// computing itself, on another only the asking for it.
inline TraceTrack compute_track(const Stream& stream) {
  return stream.runs_when_called() ? TraceTrack::kCompute : TraceTrack::kStep;
}

// For one sequence, by the thread that runs it.
class StepTrace {
 public:
  explicit StepTrace(const Stream& stream) : track_(compute_track(stream)) {}

  // What follows belongs to this episode, until the next one or wait().
  void enter(const Episode& episode);
  // A task of the episode, for as long as the result lives.
  TraceSpan task(const Task& task) const;
  // All tasks have been called; what follows is waiting for them.
  void wait();

 private:
  TraceTrack track_;
  std::optional<EpisodeKind> kind_;
  // Ends in the reverse order.
  std::optional<TraceSpan> phase_, chunk_;
};

}  // namespace longstride
