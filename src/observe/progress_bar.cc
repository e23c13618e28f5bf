#include "observe/progress_bar.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace longstride {
namespace {

ProgressOptions options_of_stderr(std::int64_t total) {
  ProgressOptions options;
  options.total = total;
  const char* kind = std::getenv("TERM");
  options.terminal =
      ::isatty(STDERR_FILENO) == 1 && (kind == nullptr || std::string_view(kind) != "dumb");
  winsize size{};
  if (options.terminal && ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
    options.columns = size.ws_col;
  return options;
}

void to_stderr(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

}  // namespace

ProgressBar::ProgressBar(std::int64_t total) : ProgressBar(options_of_stderr(total), to_stderr) {}

ProgressBar::ProgressBar(const ProgressOptions& options, std::function<void(std::string_view)> sink,
                         std::function<Clock::time_point()> now)
    : options_(options), sink_(std::move(sink)), now_(std::move(now)), last_draw_(now_()) {}

ProgressBar::~ProgressBar() {
  if (drawn_ && !finished_ && options_.terminal) sink_("\n");
}

std::string ProgressBar::bar() const {
  const std::int64_t total = std::max<std::int64_t>(options_.total, 1);
  const std::int64_t done = std::clamp<std::int64_t>(done_, 0, total);
  const double share = static_cast<double>(done) / static_cast<double>(total);
  constexpr int kWidth = 20;
  const auto full = static_cast<int>(share * kWidth);
  // Rounded down: 100% means done.
  return fmt::format("[{:=<{}}{:<{}}] {:>3}%", "", full, "", kWidth - full,
                     static_cast<int>(share * 100));
}

void ProgressBar::draw() {
  if (options_.terminal) {
    // A line as wide as the terminal would wrap, and the next redraw would not clear it.
    const auto room = static_cast<std::size_t>(std::max(options_.columns - 1, 1));
    sink_("\r" + (bar() + " " + text_).substr(0, room) + "\x1b[K");
  } else {
    sink_(text_ + "\n");
  }
  last_draw_ = now_();
  drawn_ = current_ = true;
}

void ProgressBar::update(std::int64_t done, std::string_view text) {
  if (finished_) return;
  done_ = done;
  text_ = text;
  current_ = false;
  const auto interval = options_.terminal ? options_.redraw : options_.plain_interval;
  const bool always = options_.terminal && (!drawn_ || done >= options_.total);
  if (always || now_() - last_draw_ >= interval) draw();
}

void ProgressBar::print_line(std::string_view line) {
  const bool on_screen = options_.terminal && drawn_ && !finished_;
  sink_((on_screen ? "\r\x1b[K" : "") + std::string(line) + "\n");
  if (on_screen)
    draw();
  else
    last_draw_ = now_();
}

void ProgressBar::clear() {
  if (options_.terminal && drawn_ && !finished_) sink_("\r\x1b[K");
  drawn_ = false;
}

void ProgressBar::finish() {
  if (finished_) return;
  if (options_.terminal && !current_ && !text_.empty()) draw();
  if (drawn_ && options_.terminal) sink_("\n");
  finished_ = true;
}

}  // namespace longstride
