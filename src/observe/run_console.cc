#include "observe/run_console.h"

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "base/log.h"
#include "observe/step_record.h"

namespace longstride {
namespace {

constexpr std::int64_t kParts = 1000;  // of a step, for the bar

}  // namespace

std::string describe_progress(const ConsoleProgress& p, double seconds) {
  std::string text = fmt::format("step {}/{}: ", p.step, p.total_steps);
  if (p.sequences > 1) text += fmt::format("sequence {}/{}, ", p.sequence + 1, p.sequences);
  text +=
      fmt::format("{}, chunk {}/{}, {}", p.phase, p.chunk + 1, p.chunks, format_duration(seconds));
  // An estimate from less would fluctuate.
  constexpr double kEnough = 0.02;
  if (p.done >= kEnough)
    text += fmt::format("<{}", format_duration(seconds / p.done * (1 - p.done)));
  return text;
}

RunConsole::RunConsole() : RunConsole(std::make_unique<ProgressBar>(kParts)) {}

RunConsole::RunConsole(std::unique_ptr<ProgressBar> bar) : bar_(std::move(bar)) {
  set_log_sink([this](std::string_view text) {
    const std::lock_guard lock(mutex_);
    if (text.ends_with('\n')) text.remove_suffix(1);
    bar_->print_line(text);
  });
}

RunConsole::~RunConsole() {
  set_log_sink(nullptr);
  bar_->clear();
}

void RunConsole::start_phase(std::string_view what) {
  const std::lock_guard lock(mutex_);
  bar_->update(0, what);
}

void RunConsole::update(const ConsoleProgress& progress) {
  const std::lock_guard lock(mutex_);
  const Clock::time_point now = Clock::now();
  if (progress.step != std::exchange(step_, progress.step)) step_begin_ = now;
  bar_->update(
      static_cast<std::int64_t>(progress.done * static_cast<double>(kParts)),
      describe_progress(progress, std::chrono::duration<double>(now - step_begin_).count()));
}

void RunConsole::end_step(std::string_view line) {
  const std::lock_guard lock(mutex_);
  bar_->clear();
  bar_->print_line(line);
}

}  // namespace longstride
