// MetricsFile: a JSON object per step and line, appended (docs/metrics.md).
#pragma once

#include <cstdint>
#include <filesystem>

#include "observe/step_record.h"

namespace longstride {

// One writer at a time: the file is locked against other processes. A line is in the file when
// `append` returns, so that a killed process loses none; the next process drops what it will do
// again.
class MetricsFile {
 public:
  // Creates the file and its directory where missing. Of an existing file the lines up to step
  // `last_step` stay (0: a new run, none) and the rest goes, at once; so does a last line cut short
  // by a crash. Throws Error if the file cannot be written, another process writes it, or a line
  // that would stay is not a record.
  MetricsFile(const std::filesystem::path& path, std::int64_t last_step);
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;
  ~MetricsFile();

  // Throws Error where the line cannot be written whole (disk full); nothing of it stays then, and
  // later ones may be appended.
  void append(const StepRecord& record);

 private:
  std::filesystem::path path_;
  int fd_ = -1;
};

}  // namespace longstride
