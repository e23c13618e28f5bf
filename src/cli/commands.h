// The subcommands, one file each: each adds itself to the parser and sets `action` when chosen.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

#include "train/attention_choice.h"
#include "train/step.h"

namespace longstride::cli {

// Returns the exit status of the program: 0 success, 1 a broken invariant or another failure, 2 a
// user's mistake.
using Action = std::function<int()>;

void add_train(CLI::App& app, Action& action);
void add_eval(CLI::App& app, Action& action);
void add_generate(CLI::App& app, Action& action);
void add_merge(CLI::App& app, Action& action);
void add_gradients(CLI::App& app, Action& action);
void add_inspect(CLI::App& app, Action& action);
void add_bench(CLI::App& app, Action& action);
void add_plan(CLI::App& app, Action& action);
void add_calibrate(CLI::App& app, Action& action);
void add_demo(CLI::App& app, Action& action);

// Adds `--compute` and `--determinism`, checked; `choice` must outlive the parser.
void add_compute_options(CLI::App& command, NumericsChoice& choice);
// Adds `--kv-dtype`.
void add_kv_option(CLI::App& command, NumericsChoice& choice);
// All of these and `--kv-gradient-dtype`, for commands with a backward pass.
void add_numerics_options(CLI::App& command, NumericsChoice& choice);
// All but --attention itself, whose words differ by command.
void add_sparse_options(CLI::App& command, AttentionChoice& choice);
// As apply_attention, and throws Error for options that would have no effect.
SparseLayers apply_sparse_options(const AttentionChoice& choice, std::int64_t page_tokens,
                                  std::int64_t context, ModelConfig& config);
// Adds `--device`, checked; "auto" by default.
void add_device_option(CLI::App& command, std::string& device);

}  // namespace longstride::cli
