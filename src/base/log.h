// Messages for users, on stderr. Thread-safe: a message is written in one call. A message that
// cannot be written (a closed pipe, a full disk) is dropped: it is no reason to end a run.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <string_view>
#include <utility>

namespace longstride {

void log_line(std::string_view level, std::string_view text);
// Several lines as they are, for tables. `text` ends with a newline.
void log_text(std::string_view text);

// Receives every message instead of stderr, as whole lines with their newline, until it is
// replaced; null restores stderr. Called from any thread, one call at a time. For displays that
// redraw a line, such as a progress bar.
using LogSink = std::function<void(std::string_view)>;
void set_log_sink(LogSink sink);

template <class... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  log_line("", fmt::format(format, std::forward<Args>(args)...));
}

template <class... Args>
void log_warning(fmt::format_string<Args...> format, Args&&... args) {
  log_line("warning: ", fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace longstride
