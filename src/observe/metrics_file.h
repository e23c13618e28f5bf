// MetricsFile: appends one line per step or evaluation, a JSON object (docs/metrics.md).
#pragma once

#include <cstdint>
#include <filesystem>

#include "base/json.h"
#include "observe/step_record.h"

namespace longstride {

// One writer at a time: the file is locked against other processes. A line is in the file when
// `append` returns, so that a killed process loses none; a resumed run drops the lines of steps
// that it will repeat.
//
// Not thread-safe: the thread that runs the steps owns it.
class MetricsFile {
 public:
  // Creates the file and its directory if missing. Keeps the lines of an existing file up to step
  // `last_step` (0: a new run, none) and drops the rest, including a last line cut short by a
  // crash. Throws Error if the file cannot be written, another process writes it, or a line to keep
  // is not a record.
  MetricsFile(const std::filesystem::path& path, std::int64_t last_step);
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;
  ~MetricsFile();

  // Throws Error if the line cannot be written whole (disk full); the file is then unchanged, and
  // later lines may be appended.
  void append(const StepRecord& record);
  // A line of another kind, under the same terms. It has `time`, `kind` and `step`.
  void append(const OrderedJson& line);

 private:
  std::filesystem::path path_;
  int fd_ = -1;
};

}  // namespace longstride
