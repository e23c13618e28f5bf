// What a command prints as its result, on stdout.
#pragma once

#include <string_view>

namespace longstride::cli {

// Writes the text, and sees that it got there. Returns the exit status of the program: 0, or 1
// where stdout could not take all of it (a full disk, a closed pipe), which stderr then says.
int print_output(std::string_view text);

}  // namespace longstride::cli
