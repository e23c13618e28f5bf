#include "base/log.h"

#include <cstdio>
#include <string>

namespace longstride {

void log_line(std::string_view level, std::string_view text) {
  std::string line;
  line.append(level).append(text).push_back('\n');
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace longstride
