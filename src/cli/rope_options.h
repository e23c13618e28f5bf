// The options by which commands replace a model's rotary positions: --rope-type and its companions.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <string>

#include "model/config.h"
#include "model/rope_choice.h"

namespace longstride::cli {

struct RopeOptions {
  RopeChoice choice = {};
  std::string original_positions = {};  // of `choice`, as it was given
};

// `options` must outlive the parser.
void add_rope_options(CLI::App& command, RopeOptions& options);

// The config of the model in `directory` with the options in place; without any, with the rotary
// positions that the adapter in the directory `adapter` was trained with, where its state/ says so
// ("": there is no adapter). `tokens`: of the longest sequence.
ModelConfig config_with_rope(const RopeOptions& options, ModelConfig config,
                             const std::filesystem::path& directory,
                             const std::filesystem::path& adapter, std::int64_t tokens);

}  // namespace longstride::cli
