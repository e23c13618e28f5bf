#include "base/trace_spans.h"

#include <fmt/format.h>

#include <chrono>
#include <iterator>
#include <utility>

#include "base/error.h"

namespace longstride {

const char* name_of(TraceTrack track) {
  switch (track) {
    case TraceTrack::kStep:
      return "step";
    case TraceTrack::kCompute:
      return "compute";
    case TraceTrack::kFromHost:
      return "from host";
    case TraceTrack::kToHost:
      return "to host";
    case TraceTrack::kDisk:
      return "disk";
    case TraceTrack::kMessages:
      return "messages";
  }
  return "";
}

std::string text_of(const SpanName& name) {
  std::string text = name.what;
  if (name.number >= 0) fmt::format_to(std::back_inserter(text), " {}", name.number);
  if (name.chunk >= 0) fmt::format_to(std::back_inserter(text), " chunk {}", name.chunk);
  if (name.layer >= 0) fmt::format_to(std::back_inserter(text), " layer {}", name.layer);
  return text;
}

std::uint64_t trace_clock_ns() {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                        std::chrono::steady_clock::now().time_since_epoch())
                                        .count());
}

void TraceSpans::start(std::size_t room) {
  const std::lock_guard lock(mutex_);
  LS_CHECK(!on(), "a trace is being recorded already");
  recorded_ = {};
  recorded_.spans.reserve(room);
  room_ = room;
  started_ns_ = trace_clock_ns();
  on_ = true;
}

TraceSpans::Recorded TraceSpans::stop() {
  const std::lock_guard lock(mutex_);
  on_ = false;
  return std::exchange(recorded_, {});
}

void TraceSpans::add(const Span& span) {
  const std::lock_guard lock(mutex_);
  if (!on() || span.begin_ns < started_ns_) return;
  if (recorded_.spans.size() < room_)
    recorded_.spans.push_back(span);
  else
    ++recorded_.dropped;
}

TraceSpans& trace_spans() {
  static TraceSpans spans;
  return spans;
}

void TraceSpan::end() {
  span_.end_ns = trace_clock_ns();
  trace_spans().add(span_);
}

}  // namespace longstride
