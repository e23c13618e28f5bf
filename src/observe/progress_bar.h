// ProgressBar: how far a run is. On a terminal one line that is redrawn; elsewhere plain lines at
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
  // For stderr, as it is.
  explicit ProgressBar(std::int64_t total);
  // `sink` gets every byte that would be written; `now` tells the time.
  ProgressBar(const ProgressOptions& options, std::function<void(std::string_view)> sink,
              std::function<Clock::time_point()> now = Clock::now);
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  // Ends the line of a bar that was not finished.
  ~ProgressBar();

  // `text` is shown after the bar. On a terminal the first and the last update are drawn always,
  // others at most as often as the options say. Elsewhere the text alone is a line, at most once in
  // an interval, counted from the beginning and from any line.
  void update(std::int64_t done, std::string_view text);
  // A whole line of its own, above the bar.
  void print_line(std::string_view line);
  // Takes the bar off a terminal, until the next update.
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
  bool current_ = false;  // what is on the screen is the latest update
  bool finished_ = false;
};

}  // namespace longstride
