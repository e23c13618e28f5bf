#include "cli/output.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/log.h"

namespace longstride::cli {

int print_output(std::string_view text) {
  errno = 0;
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0)
    return 0;
  log_line("error: ", fmt::format("the result cannot be written to standard output: {}",
                                  std::strerror(errno)));  // NOLINT(concurrency-mt-unsafe)
  log_line("  hint: ", "write it to a disk with free space, or to a pipe that is read");
  return 1;
}

}  // namespace longstride::cli
