// Reports results of the command-line parser in the style of our other messages.
#pragma once

#include <CLI/CLI.hpp>

namespace longstride::cli {

// Prints help or the version on stdout, or the error with a hint on stderr. Returns the exit status
// of the program.
int report_usage(const CLI::App& app, const CLI::ParseError& e);

// For options that name a file: refuses the empty text that an unset shell variable leaves.
CLI::Validator not_empty();
// For options that take a number: refuses infinity and NaN, which CLI11's own ranges accept.
CLI::Validator finite_number();

}  // namespace longstride::cli
