// ProgressBar: progress of a run. On a terminal, one line that is redrawn; elsewhere plain lines at
// intervals.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace longstride {

struct ProgressOptions {
  std::int64_t total = 0;
  bool terminal = false;
  int columns = 80;                                    // width of the terminal
  std::chrono::duration<double> redraw{0.1};           // on a terminal
  std::chrono::duration<double> plain_interval{60.0};  // elsewhere
};

// Not thread-safe.
class ProgressBar {
 public:
  using Clock = std::chrono::steady_clock;
  // Writes to stderr; detects whether it is a terminal.
  explicit ProgressBar(std::int64_t total);
  // `sink` receives all output; `now` is the clock.
  ProgressBar(const ProgressOptions& options, std::function<void(std::string_view)> sink,
              std::function<Clock::time_point()> now = Clock::now);
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  // Ends the line of a bar that was not finished.
  ~ProgressBar();

  // `text` is shown after the bar. On a terminal the first and the last update are always drawn,
  // others at most as often as the options say. Elsewhere the text alone is printed as a line, at
  // most once per interval since the beginning or the last line.
  void update(std::int64_t done, std::string_view text);
  // Prints a separate line above the bar.
  void print_line(std::string_view line);
  // Removes the bar from a terminal, until the next update.
  void clear();
  // Leaves the last state on the screen and ends its line. Further calls do nothing.
  void finish();

 private:
  void draw();
  std::string bar() const;

  ProgressOptions options_;
  std::function<void(std::string_view)> sink_;
  std::function<Clock::time_point()> now_;
  Clock::time_point last_draw_{};
  std::int64_t done_ = 0;
  std::string text_;
  bool drawn_ = false;    // at least once
  bool current_ = false;  // the screen shows the latest update
  bool finished_ = false;
};

}  // namespace longstride
