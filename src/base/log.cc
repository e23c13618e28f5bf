#include "base/log.h"

#include <cstdio>
#include <mutex>
#include <string>
#include <utility>

namespace longstride {
namespace {

std::mutex& sink_mutex() {
  static std::mutex mutex;
  return mutex;
}

LogSink& sink() {
  static LogSink current;
  return current;
}

}  // namespace

void log_line(std::string_view level, std::string_view text) {
  std::string line;
  line.append(level).append(text).push_back('\n');
  log_text(line);
}

void log_text(std::string_view text) {
  const std::lock_guard lock(sink_mutex());
  if (sink()) return sink()(text);
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::clearerr(stderr);  // it may be writable again
}

void set_log_sink(LogSink next) {
  const std::lock_guard lock(sink_mutex());
  sink() = std::move(next);
}

}  // namespace longstride
