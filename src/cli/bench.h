// longstride bench: its two subcommands and what they share.
#pragma once

#include <string>

#include "base/json.h"
#include "cli/commands.h"

namespace longstride::cli {

void add_bench_step(CLI::App& bench, Action& action);
void add_bench_kernels(CLI::App& bench, Action& action);

// Before work begins: throws Error where `file` cannot be written, or is there and no result of
// ours. Nothing where it is empty.
void check_bench_json(const std::string& file);
// To `file`, or as one line to stdout where it is empty. Returns the program's exit status.
int write_bench_json(const std::string& file, const OrderedJson& json);

}  // namespace longstride::cli
