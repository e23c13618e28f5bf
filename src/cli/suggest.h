// Commands that a user can copy: they name the program and the files as they are reached from where
// the user stands.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace longstride::cli {

// One word of a shell command, in quotes where it needs them.
std::string shell_word(const std::string& text);

// How to call this program: `longstride` where the PATH leads to it, else its path.
std::string program_word();

// A file of examples/, beside the program or in the sources that it was built from.
std::optional<std::string> example_word(const std::string& name);

}  // namespace longstride::cli
