// Spans of time for a trace: who did what, from when to when, on the host. One recording for the
// whole process, off by default; then a span costs one load and no name is put together.
//
// While it is on, spans go into room that was taken before, from any thread; what does not fit is
// counted and dropped.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace longstride {

// The rows of a trace. On a device that computes on its own, kCompute and copies come from what it
// recorded (Device::record_activity), and kStep holds when the host asked for them.
enum class TraceTrack : std::uint8_t { kStep, kCompute, kFromHost, kToHost, kDisk };
inline constexpr int kTraceTracks = 5;
const char* name_of(TraceTrack track);

// What a span is about, in parts: they become text when the trace is written.
struct SpanName {
  const char* what = "";     // a literal: its address is kept
  std::int64_t number = -1;  // -1, here and below: not said
  std::int64_t chunk = -1, layer = -1;
  std::int64_t bytes = -1;  // beside the text
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

// Thread-safe, but for start and stop, which one thread calls in turn.
class TraceSpans {
 public:
  static constexpr std::size_t kRoom = std::size_t{1} << 20;  // 64 MiB, where they are used

  // Takes the room and records from now on.
  void start(std::size_t room = kRoom);
  struct Recorded {
    std::vector<Span> spans;   // in no order
    std::int64_t dropped = 0;  // for want of room
  };
  // Ends it. Spans that have not ended yet are in none.
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

// The process's.
TraceSpans& trace_spans();

// From its construction to its destruction.
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
