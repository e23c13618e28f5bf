// Errors: what went wrong, where, and what to do about it.
//
// Error          invalid input from the user (file, config, budget). The CLI prints `message`,
//                then `hint`, and exits with status 2.
// InternalError  a broken invariant of the program (LS_CHECK). Exit status 1.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace longstride {

class Error : public std::runtime_error {
 public:
  // `message` names what is wrong and where; `hint` says what to do. Neither ends with a newline.
  explicit Error(const std::string& message, std::string hint = "")
      : std::runtime_error(message), hint_(std::move(hint)) {}
  const std::string& hint() const { return hint_; }

 private:
  std::string hint_;
};

class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

[[noreturn]] void fail_check(const char* file, int line, const char* condition,
                             const std::string& details);

}  // namespace longstride

// Checks an invariant; the remaining arguments are a fmt format that names the values involved.
#define LS_CHECK(condition, ...)                                                               \
  do {                                                                                         \
    if (!(condition)) [[unlikely]]                                                             \
      ::longstride::fail_check(__FILE__, __LINE__, #condition, ::fmt::format("" __VA_ARGS__)); \
  } while (false)
