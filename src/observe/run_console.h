// RunConsole: what a person sees of a run on stderr while it goes on. On a terminal a line with the
// phase and the chunk that is redrawn below the messages; elsewhere a plain line once a minute
// where a step takes longer than that.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "observe/progress_bar.h"

namespace longstride {

struct ConsoleProgress {
  std::int64_t step = 0, total_steps = 0;
  std::int64_t sequence = 0, sequences = 1;  // counted from 0
  std::string_view phase;                    // "forward", "recompute", "backward"
  std::int64_t chunk = 0, chunks = 1;        // counted from 0
  double done = 0;                           // share of the step
};

// Takes all messages of the log (base/log.h) while it lives; they may come from any thread. One at
// a time.
class RunConsole {
 public:
  RunConsole();
  // For tests: `bar` is drawn on.
  explicit RunConsole(std::unique_ptr<ProgressBar> bar);
  RunConsole(const RunConsole&) = delete;
  RunConsole& operator=(const RunConsole&) = delete;
  ~RunConsole();

  // Before the first step: what takes time now.
  void start_phase(std::string_view what);
  void update(const ConsoleProgress& progress);
  // The step has ended, and its line is printed.
  void end_step(std::string_view line);

 private:
  using Clock = std::chrono::steady_clock;
  std::mutex mutex_;
  std::unique_ptr<ProgressBar> bar_;
  std::int64_t step_ = -1;
  Clock::time_point step_begin_;
};

// "step 12/100: backward, chunk 17/32, 0:41<1:10": the time of this step so far, and the time left.
std::string describe_progress(const ConsoleProgress& progress, double seconds);

}  // namespace longstride
