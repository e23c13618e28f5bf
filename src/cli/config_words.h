// The words of a command line that the parser leaves over: a configuration file, and settings.
#pragma once

#include <string>
#include <vector>

namespace longstride::cli {

struct ConfigWords {
  std::string config;                  // empty: none was given
  std::vector<std::string> overrides;  // "a.b=c", from "--a.b=c" or "--a.b c"
};

// Throws Error for anything else; `command` is for its hint.
ConfigWords sort_words(const std::vector<std::string>& extras, const std::string& command);

}  // namespace longstride::cli
