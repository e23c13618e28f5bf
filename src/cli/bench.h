// longstride bench: its subcommands and their common output.
#pragma once

#include <string>

#include "base/json.h"
#include "cli/commands.h"

namespace longstride::cli {

void add_bench_step(CLI::App& bench, Action& action);
void add_bench_kernels(CLI::App& bench, Action& action);
void add_bench_link(CLI::App& bench, Action& action);

// Before work begins: throws Error if `file` cannot be written, or exists and is not a bench
// result. Does nothing if the name is empty.
void check_bench_json(const std::string& file);
// Writes to `file`, or one line to stdout if the name is empty. Returns the program's exit status.
int write_bench_json(const std::string& file, const OrderedJson& json);

}  // namespace longstride::cli
