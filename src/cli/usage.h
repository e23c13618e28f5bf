// What the parser of the command line has to say, in the form of our other messages.
#pragma once

#include <CLI/CLI.hpp>

namespace longstride::cli {

// Prints help and the version on stdout, or what is wrong, with a hint, on stderr. Returns the exit
// status of the program.
int report_usage(const CLI::App& app, const CLI::ParseError& e);

// For options that name a file: not the empty text, which a variable that is not set leaves.
CLI::Validator not_empty();
// For options that take a number: neither infinite nor NaN, which CLI11's own ranges let pass.
CLI::Validator finite_number();

}  // namespace longstride::cli
