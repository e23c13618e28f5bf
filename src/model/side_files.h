// What a saved model carries over from the one it was made of, beside weights and config.json: the
// generation config, the tokenizer and its chat template. They are small and are read whole, at the
// start of a run, so that a save needs nothing of the directory they came from.
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

// Those of a Hugging Face directory, by name. Throws Error where one cannot be read.
std::vector<SideFile> read_side_files(const std::filesystem::path& directory);

}  // namespace longstride
