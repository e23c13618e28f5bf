// Writes a trace for ui.perfetto.dev and chrome://tracing: Chrome's JSON, one complete event ("X")
// for each span, in microseconds since the first, with three decimals.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/trace_spans.h"
#include "device/device.h"

namespace longstride {

// What one process recorded.
struct Trace {
  std::string title;  // the command and the device
  TraceSpans::Recorded host;
  ActivityLog device;  // kernels, fills and copies of the compute queue are "compute"
};

// Events, of one process or of all.
struct TraceCounts {
  std::int64_t spans = 0, activities = 0;  // of the host, and of the device
  std::int64_t dropped_spans = 0, dropped_activities = 0;
  TraceCounts& operator+=(const TraceCounts& more);
};
TraceCounts counts_of(const Trace& trace);

// Names every track, even without events. Events of a track that overlap and do not nest go to
// further rows of its name ("disk 2"). Dropped events are counted under "otherData". The write is
// atomic; throws Error if it fails.
void write_trace(const std::filesystem::path& path, const Trace& trace);
// True if a file that begins with `head` was written by write_trace.
bool begins_as_trace(std::string_view head);

// The pieces of a trace file, for several processes that write one (observe/rank_trace.h): a head,
// the rows of every process, an end.
using TextSink = std::function<void(std::string_view)>;
std::string trace_head(const std::string& title, const TraceCounts& counts);
std::string trace_end();

// How the rows of a process are written.
struct TraceProcess {
  int number = 0;  // in the file, from 0, in this order
  std::string name;
  std::uint64_t first_ns = 0;  // time 0 of the file, by this process's clock
};

// The rows of a trace, which must outlive it.
class TraceRows {
 public:
  explicit TraceRows(const Trace& trace);
  // When the first event began; UINT64_MAX if there is none.
  std::uint64_t first_ns() const;
  // In pieces of about a MiB.
  void write(const TraceProcess& process, const TextSink& sink) const;

 private:
  // One of the two is null.
  struct Event {
    std::uint64_t begin_ns = 0, end_ns = 0;
    const Span* span = nullptr;
    const Activity* activity = nullptr;
    int row = 0;
  };
  struct Track {
    std::vector<Event> events;
    int rows = 1;
  };
  class Writer;
  static void place_in_rows(Track& track);

  std::array<Track, kTraceTracks> tracks_;
};

}  // namespace longstride
