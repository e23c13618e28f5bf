#include "cli/run_sinks.h"

#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/sizes.h"
#include "cli/stop_signals.h"

namespace longstride::cli {

void ConsoleSink::on_phase(std::string_view what) {
  console_.start_phase(fmt::format("start: {}", what));
}

void ConsoleSink::on_progress(const StepProgress& p) {
  console_.update({p.step, p.total_steps, p.sequence, p.sequences, p.in_sequence.phase,
                   p.in_sequence.chunk, p.in_sequence.chunks, p.done});
}

void SaveSink::on_save(const std::filesystem::path& path) { log_info("saved {}", path.string()); }

void SaveSink::on_saving(bool saving) { StopSignals::set_saving(saving); }

void StartTimesSink::on_start() {
  std::string text = fmt::format("plan {:.1f} s", plan_s_);
  for (const StartTime& time : trainer_.start_times())
    text += fmt::format(", {} {:.1f} s", time.what, time.seconds);
  log_info("start: {}", text);
}

void PlannedSink::on_step(const StepReport& report) {
  if (steps_++ == 0) first_s_ = report.seconds.total;
  all_s_ += report.seconds.total;
}

void PlannedSink::finish() const {
  if (steps_ < 2) return;
  const auto text = [](std::int64_t bytes) { return format_bytes(static_cast<double>(bytes)); };
  log_info("planned: {}{} of the device; measured: {:.4g} s a step after the first, {} allocated",
           seconds_ ? fmt::format("{:.4g} s a step, ", *seconds_) : "", text(bytes_),
           (all_s_ - first_s_) / static_cast<double>(steps_ - 1), text(device_.allocated_bytes()));
}

TraceSink::TraceSink(Tracer& tracer, Device& device, std::string title, std::int64_t last_step)
    : tracer_(tracer), device_(device), title_(std::move(title)), last_step_(last_step) {}

void TraceSink::on_step(const StepReport& report) {
  if (report.step >= last_step_) finish();
}

void TraceSink::finish() {
  if (!tracer_.running()) return;
  try {
    tracer_.finish();
  } catch (const Error& e) {
    log_warning("trace: {}; the run goes on without it", e.what());
  }
}

}  // namespace longstride::cli
