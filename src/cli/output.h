// Prints a command's result on stdout.
#pragma once

#include <string_view>

namespace longstride::cli {

// Writes the text and checks that it was written. Returns the exit status of the program: 0, or 1
// with a message on stderr if stdout did not take all of it (a full disk, a closed pipe).
int print_output(std::string_view text);

}  // namespace longstride::cli
