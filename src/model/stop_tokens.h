// The tokens that end a generated text, by a model's own files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "model/config.h"

namespace longstride {

// eos_token_id of `directory`/generation_config.json; if that names none, of config.json. One or
// several ids, or none. Throws Error if it is something else.
std::vector<std::int32_t> read_stop_tokens(const std::filesystem::path& directory,
                                           const ModelConfig& config);

}  // namespace longstride
