#include "observe/tracer.h"

#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/output_file.h"
#include "base/trace_spans.h"
#include "observe/rank_trace.h"

namespace longstride {
namespace {

void check_place(const std::filesystem::path& file) {
  check_output_file(file, {"--trace", "a trace of longstride", begins_as_trace});
}

}  // namespace

Tracer::Tracer(std::filesystem::path file, comm::MessageLink* link)
    : file_(std::move(file)), link_(link) {
  if (link == nullptr || link->rank() == 0) check_place(file_);
}

Tracer::~Tracer() {
  if (running()) trace_spans().stop();
}

void Tracer::start(Device& device, const std::string& title) {
  LS_CHECK(!running(), "{} is being recorded already", file_.string());
  device.stream().synchronize();
  recorder_ = device.record_activity();
  if (recorder_ == nullptr && !device.stream().runs_when_called())
    log_warning(
        "trace: {} has no recorder here (on a GPU: libcupti.so.13 of the CUDA toolkit); the trace "
        "shows when work was asked for, not when it ran",
        device.name());
  title_ = fmt::format("longstride {} on {}", title, device.name());
  if (link_ != nullptr) clock_offset_ns_ = measure_clock_offset(*link_);
  trace_spans().start();
  device_ = &device;
}

void Tracer::finish() {
  LS_CHECK(running(), "nothing is being recorded");
  device_->stream().synchronize();
  device_ = nullptr;
  Trace trace{title_, trace_spans().stop(), {}};
  if (recorder_ != nullptr) trace.device = std::exchange(recorder_, nullptr)->finish();
  const auto check = [this] { check_place(file_); };  // the run may have created a file there
  TraceCounts counts = counts_of(trace);
  if (link_ != nullptr) {
    counts = write_rank_traces(*link_, file_, trace, clock_offset_ns_, check);
  } else {
    check();
    write_trace(file_, trace);
  }
  log_info("trace: {} spans of the host and {} of the device in {}; open it at ui.perfetto.dev",
           counts.spans, counts.activities, file_.string());
  if (counts.dropped_spans + counts.dropped_activities > 0)
    log_warning("trace: {} spans of the host and {} of the device were dropped, so {} has gaps",
                counts.dropped_spans, counts.dropped_activities, file_.string());
}

}  // namespace longstride
