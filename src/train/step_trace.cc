#include "train/step_trace.h"

namespace longstride {
namespace {

const char* name_of(EpisodeKind kind) {
  switch (kind) {
    case EpisodeKind::kForward:
    case EpisodeKind::kWavefront:
      return "forward";
    case EpisodeKind::kKept:
      return "kept";
    case EpisodeKind::kRecompute:
      return "backward";
  }
  return "";
}

const char* name_of(TaskKind kind, bool again) {
  switch (kind) {
    case TaskKind::kEmbed:
      return again ? "embed again" : "embed";
    case TaskKind::kLayerForward:
      return again ? "recompute" : "forward";
    case TaskKind::kHead:
      return "head";
    case TaskKind::kLayerBackward:
      return "backward";
    case TaskKind::kRelease:
      return "release pages";
    case TaskKind::kEmbedBackward:
      return "embed backward";
    case TaskKind::kSend:
      return "send";
    case TaskKind::kReceiveGradient:
      return "receive gradient";
    case TaskKind::kSendGradient:
      return "send gradient";
  }
  return "";
}

}  // namespace

void StepTrace::enter(const Episode& episode) {
  chunk_.reset();
  if (kind_ != episode.kind) {
    kind_ = episode.kind;
    phase_.emplace(TraceTrack::kStep, SpanName{name_of(episode.kind)});
  }
  // Several chunks of one episode are named after the first.
  chunk_.emplace(TraceTrack::kStep,
                 SpanName{.what = name_of(episode.kind), .chunk = episode.tasks.front().chunk});
}

TraceSpan StepTrace::task(const Task& task) const {
  const bool receives = receives_ && task.kind == TaskKind::kEmbed && task.output;
  return {track_,
          {.what = receives ? "receive" : name_of(task.kind, kind_ == EpisodeKind::kRecompute),
           .chunk = task.chunk,
           .layer = task.layer}};
}

void StepTrace::wait() {
  chunk_.reset();
  phase_.emplace(TraceTrack::kStep, SpanName{"wait"});
}

}  // namespace longstride
