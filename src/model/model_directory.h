// Reads Hugging Face model directories (config.json and safetensors), and writes them, with
// generation config and tokenizer files.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "model/config.h"
#include "model/file_tensors.h"
#include "model/parameters.h"
#include "model/safetensors_reader.h"
#include "model/safetensors_writer.h"
#include "model/side_files.h"

namespace longstride {

// A model directory whose config and tensor names, shapes and types have been checked. Immutable
// after construction, so any thread may read it.
class ModelDirectory {
 public:
  // Throws Error that names the file and the field or tensor if one is missing, unexpected, of the
  // wrong shape, or of a type other than F32, F16 and BF16. Projections may be quantized, as
  // bitsandbytes stores them (model/bitsandbytes_tensors.h).
  static ModelDirectory open(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  const ModelConfig& config() const { return config_; }
  const SafetensorsReader& reader() const { return reader_; }
  // The model's parameters, each in the type of its tensor; quantized ones are not trained.
  std::vector<ParameterSpec> specs() const;
  // Copies the weights of `parameters` (made for this config, or of a stage of it, each of a type
  // that load_weights accepts), on its device. Refuses NaN and infinity, naming tensor and index.
  void load(ParameterSet& parameters) const;

 private:
  ModelDirectory(std::filesystem::path path, ModelConfig config, SafetensorsReader reader);
  void check_tensors() const;
  // The block format of a quantized projection.
  std::optional<DType> stored_format(const ParameterSpec& spec) const;

  std::filesystem::path path_;
  ModelConfig config_;
  SafetensorsReader reader_;
};

// Throws Error if a value is not finite, because it could not be loaded again. `name` is the
// tensor's, `what` begins the message ("the weights are").
void check_finite(std::span<const std::byte> values, DType dtype, const std::string& name,
                  const char* what);

// Writes weights, config.json, the side files and, if it is not among them, generation_config.json
// into the existing `directory`. Refuses weights that are not finite; a side file that cannot be
// written is skipped with a warning. Not atomic: DirectoryWriter (base/files.h) provides that.
// Returns every file written.
std::vector<WrittenFile> write_model_directory(const std::filesystem::path& directory,
                                               const ModelConfig& config,
                                               const TensorsToWrite& weights,
                                               std::span<const SideFile> side_files = {},
                                               std::int64_t max_shard_bytes = kDefaultShardBytes);
// All of it but the weights, whose names and types decide what config.json says.
std::vector<WrittenFile> write_beside_weights(const std::filesystem::path& directory,
                                              const ModelConfig& config,
                                              const TensorsToWrite& weights,
                                              std::span<const SideFile> side_files);
// The source of `tensors`, which refuses weights that are not finite. Both must outlive it.
TensorSource finite_weights(const TensorsToWrite& weights);
std::vector<WrittenFile> write_model_directory(const std::filesystem::path& directory,
                                               const ModelConfig& config,
                                               const ParameterSet& parameters,
                                               std::span<const SideFile> side_files = {},
                                               std::int64_t max_shard_bytes = kDefaultShardBytes);

}  // namespace longstride
