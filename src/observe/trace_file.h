// A trace as a file that ui.perfetto.dev and chrome://tracing open: Chrome's JSON, one complete
// event ("X") for each span, in microseconds from the first with three decimals.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "base/trace_spans.h"
#include "device/device.h"

namespace longstride {

struct Trace {
  std::string title;  // what ran, on what
  TraceSpans::Recorded host;
  ActivityLog device;  // kernels, fills and what is copied by the queue that computes are "compute"
};

// Every track is named, with events or without. Where events of a track overlap and do not nest,
// they go to further rows of its name ("disk 2"). What was dropped is under "otherData". Appears
// whole or not at all; throws Error where it cannot be written.
void write_trace(const std::filesystem::path& path, const Trace& trace);
// Whether a file that begins so was written by write_trace.
bool begins_as_trace(std::string_view head);

}  // namespace longstride
