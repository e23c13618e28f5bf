// Writes a trace for ui.perfetto.dev and chrome://tracing: Chrome's JSON, one complete event ("X")
// for each span, in microseconds since the first, with three decimals.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "base/trace_spans.h"
#include "device/device.h"

namespace longstride {

struct Trace {
  std::string title;  // the command and the device
  TraceSpans::Recorded host;
  ActivityLog device;  // kernels, fills and copies of the compute queue are "compute"
};

// Names every track, even without events. Events of a track that overlap and do not nest go to
// further rows of its name ("disk 2"). Dropped events are counted under "otherData". The write is
// atomic; throws Error if it fails.
void write_trace(const std::filesystem::path& path, const Trace& trace);
// True if a file that begins with `head` was written by write_trace.
bool begins_as_trace(std::string_view head);

}  // namespace longstride
