// Files that a saved model copies from its base model, in addition to weights and config.json: the
// generation config, the tokenizer and its chat template. They are small and read whole at the
// start of a run, so that a save does not need the base model's directory.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace longstride {

inline constexpr const char* kGenerationConfig = "generation_config.json";

struct SideFile {
  std::string name;
  std::string bytes;
};

// Those of a Hugging Face directory, by name. Throws Error if one cannot be read.
std::vector<SideFile> read_side_files(const std::filesystem::path& directory);

}  // namespace longstride
