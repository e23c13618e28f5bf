// Words of commands that a user can copy: paths below the current directory are relative to it.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace longstride::cli {

// One word of a shell command, quoted if necessary.
std::string shell_word(const std::string& text);

// How to call this program: `longstride` if it is in the PATH, else its path.
std::string program_word();

// Path of a file of examples/, next to the program or in the sources that it was built from.
std::optional<std::string> example_word(const std::string& name);

}  // namespace longstride::cli
