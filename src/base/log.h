// Messages for people, on stderr. Thread-safe: a message is written in one call.
#pragma once

#include <fmt/format.h>

#include <string_view>
#include <utility>

namespace longstride {

void log_line(std::string_view level, std::string_view text);

template <class... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  log_line("", fmt::format(format, std::forward<Args>(args)...));
}

template <class... Args>
void log_warning(fmt::format_string<Args...> format, Args&&... args) {
  log_line("warning: ", fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace longstride
