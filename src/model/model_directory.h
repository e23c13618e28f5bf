// Hugging Face model directories: config.json and safetensors in; the same, with generation config
// and tokenizer files, out.
#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "model/config.h"
#include "model/parameters.h"
#include "model/safetensors_reader.h"
#include "model/safetensors_writer.h"

namespace longstride {

// A model directory whose config and tensor names, shapes and types have been checked. Immutable.
class ModelDirectory {
 public:
  // Throws Error that names the file and the field or tensor: one missing, one too many, one of the
  // wrong shape or of a type other than F32, F16 and BF16.
  static ModelDirectory open(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  const ModelConfig& config() const { return config_; }
  const SafetensorsReader& reader() const { return reader_; }
  // Of each parameter, in the order of parameter_specs.
  std::vector<DType> dtypes() const;
  // Copies all weights into `parameters` (made for this config, each of the file's dtype or F32),
  // on its device. Refuses NaN and infinity, naming tensor and index.
  void load(ParameterSet& parameters) const;

 private:
  ModelDirectory(std::filesystem::path path, ModelConfig config, SafetensorsReader reader);
  void check_tensors() const;

  std::filesystem::path path_;
  ModelConfig config_;
  SafetensorsReader reader_;
};

// Writes weights, config.json and generation_config.json into the existing `directory`; with a
// `source` directory, its generation config and tokenizer files come along. Not atomic: that is
// DirectoryWriter's part (base/files.h). Returns every file written.
std::vector<WrittenFile> write_model_directory(
    const std::filesystem::path& directory, const ModelConfig& config,
    const ParameterSet& parameters,
    const std::optional<std::filesystem::path>& source = std::nullopt,
    std::int64_t max_shard_bytes = kDefaultShardBytes);

}  // namespace longstride
