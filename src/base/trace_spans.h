// Spans of time for a trace: what the host did, from when to when. One recorder for the whole
// process, off by default; while it is off, a span costs one load and formats no name.
//
// While it is on, any thread adds spans to a buffer that start() allocated; spans that do not fit
// are counted and dropped.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace longstride {

// The rows of a trace. On an asynchronous device, kCompute and the copies come from the device's
// own record (Device::record_activity), and kStep shows when the host queued them.
enum class TraceTrack : std::uint8_t { kStep, kCompute, kFromHost, kToHost, kDisk, kMessages };
inline constexpr int kTraceTracks = 6;
const char* name_of(TraceTrack track);

// A span's name in parts, which become text when the trace is written.
struct SpanName {
  const char* what = "";     // a literal: its address is kept
  std::int64_t number = -1;  // -1, here and below: absent
  std::int64_t chunk = -1, layer = -1;
  std::int64_t bytes = -1;  // not part of the text
};
// "forward chunk 3 layer 5", "step 7".
std::string text_of(const SpanName& name);

struct Span {
  TraceTrack track = TraceTrack::kStep;
  SpanName name;
  std::uint64_t begin_ns = 0, end_ns = 0;
};

// The clock of all spans: nanoseconds of std::chrono::steady_clock.
std::uint64_t trace_clock_ns();

// Thread-safe, except that one thread must call start and stop, alternately.
class TraceSpans {
 public:
  static constexpr std::size_t kRoom = std::size_t{1} << 20;  // spans; 64 MiB if all are used

  // Allocates the buffer and starts recording.
  void start(std::size_t room = kRoom);
  struct Recorded {
    std::vector<Span> spans;   // in no particular order
    std::int64_t dropped = 0;  // because the buffer was full
  };
  // Stops recording. Spans that have not ended yet are lost.
  Recorded stop();

  bool on() const { return on_.load(std::memory_order_relaxed); }
  // A span that began before start() is left out.
  void add(const Span& span);

 private:
  std::atomic<bool> on_{false};
  std::mutex mutex_;
  std::uint64_t started_ns_ = 0;
  std::size_t room_ = 0;
  Recorded recorded_;
};

// The process's only recorder.
TraceSpans& trace_spans();

// Adds a span that lasts from its construction to its destruction.
class TraceSpan {
 public:
  TraceSpan(TraceTrack track, const SpanName& name) : on_(trace_spans().on()) {
    if (on_) [[unlikely]]
      span_ = {track, name, trace_clock_ns(), 0};
  }
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;
  ~TraceSpan() {
    if (on_) [[unlikely]]
      end();
  }

 private:
  void end();
  bool on_;
  Span span_;
};

}  // namespace longstride
