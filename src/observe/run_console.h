// RunConsole: shows a run's progress on stderr. On a terminal, a line with the phase and the chunk
// is redrawn below the messages; elsewhere a plain line is printed once a minute if a step takes
// longer than that.
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

// Handles all log messages (base/log.h) while it lives; they may come from any thread. Only one may
// exist at a time.
class RunConsole {
 public:
  RunConsole();
  // For tests: draws on `bar`.
  explicit RunConsole(std::unique_ptr<ProgressBar> bar);
  RunConsole(const RunConsole&) = delete;
  RunConsole& operator=(const RunConsole&) = delete;
  ~RunConsole();

  // Before the first step: shows the current phase of the start.
  void start_phase(std::string_view what);
  void update(const ConsoleProgress& progress);
  // Ends the step and prints its line.
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
