#include <algorithm>
#include <optional>
#include <span>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/log.h"
#include "model/bitsandbytes_tensors.h"
#include "model/host_values.h"
#include "model/model_directory.h"
#include "model/written_file.h"
#include "tensor/block_formats.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;

// Whether a tensor is a weight that is not quantized, rather than a part of one that is.
bool is_plain(const TensorToWrite& tensor) {
  return is_weight_type(tensor.dtype) &&
         (tensor.name.ends_with(".weight") || tensor.name.ends_with(".bias"));
}

// transformers loads all weights as the one type that config.json names. Mixed types are written as
// float32, which holds every value of the others.
DType common_type(const std::vector<TensorToWrite>& tensors) {
  std::optional<DType> common;
  for (const TensorToWrite& tensor : tensors) {
    if (!is_plain(tensor)) continue;
    if (common && *common != tensor.dtype) return DType::kF32;
    common = tensor.dtype;
  }
  return common.value_or(DType::kF32);
}

std::string_view torch_name(DType dtype) {
  return dtype == DType::kBF16 ? "bfloat16" : dtype == DType::kF16 ? "float16" : "float32";
}

Json config_json(const ModelConfig& config, const TensorsToWrite& weights) {
  LS_CHECK(config.raw.is_object(), "a config without its JSON");
  Json json = config.raw;
  const DType dtype = common_type(weights.tensors);
  // Keeps the original key's spelling, so that programs which read the original read the result.
  const char* key =
      json.contains("torch_dtype") && !json.contains("dtype") ? "torch_dtype" : "dtype";
  json.erase("torch_dtype");
  json[key] = torch_name(dtype);
  if (weights.format && !json.contains("quantization_config"))
    json["quantization_config"] = quantization_json(*weights.format, dtype);
  return json;
}

Json generation_json(const ModelConfig& config) {
  Json json = {{"_from_model_config", true}};
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"})
    if (config.raw.contains(key) && !config.raw[key].is_null()) json[key] = config.raw[key];
  return json;
}

// A side file that cannot be written does not fail the save.
void write_side_file(const fs::path& directory, const SideFile& file,
                     std::vector<WrittenFile>& written) {
  const fs::path path = directory / file.name;
  try {
    written.push_back(write_bytes(path, std::as_bytes(std::span(file.bytes))));
  } catch (const Error& e) {
    log_warning("{} is left out of the save: {}", file.name, e.what());
    std::error_code ignored;
    fs::remove(path, ignored);
  }
}

}  // namespace

void check_finite(std::span<const std::byte> values, DType dtype, const std::string& name,
                  const char* what) {
  const std::int64_t bad =
      first_nonfinite(values.data(), dtype, std::ssize(values) / size_of(dtype));
  if (bad < 0) return;
  float value = 0;
  load_floats(values.data() + bad * size_of(dtype), dtype, {&value, 1});
  throw Error(
      fmt::format("{} broken: {} holds {}", what, name, value),
      "they are not saved, and older checkpoints stay; resume from the last one with a lower "
      "optimizer.learning_rate");
}

TensorSource finite_weights(const TensorsToWrite& weights) {
  return [&weights](std::int64_t i, const ByteSink& sink) {
    const TensorToWrite& tensor = weights.tensors[static_cast<std::size_t>(i)];
    weights.read(i, [&](std::span<const std::byte> bytes) {
      if (is_weight_type(tensor.dtype))  // integers are finite
        check_finite(bytes, tensor.dtype, tensor.name, "the weights are");
      sink(bytes);
    });
  };
}

std::vector<WrittenFile> write_beside_weights(const fs::path& directory, const ModelConfig& config,
                                              const TensorsToWrite& weights,
                                              std::span<const SideFile> side_files) {
  std::vector<WrittenFile> written = {
      write_json(directory / "config.json", config_json(config, weights))};
  for (const SideFile& file : side_files) write_side_file(directory, file, written);
  if (std::ranges::find(side_files, kGenerationConfig, &SideFile::name) == side_files.end())
    written.push_back(write_json(directory / kGenerationConfig, generation_json(config)));
  return written;
}

std::vector<WrittenFile> write_model_directory(const fs::path& directory, const ModelConfig& config,
                                               const TensorsToWrite& weights,
                                               std::span<const SideFile> side_files,
                                               std::int64_t max_shard_bytes) {
  std::vector<WrittenFile> written =
      write_safetensors_model(directory, weights.tensors, finite_weights(weights), max_shard_bytes);
  for (WrittenFile& file : write_beside_weights(directory, config, weights, side_files))
    written.push_back(std::move(file));
  return written;
}

std::vector<WrittenFile> write_model_directory(const fs::path& directory, const ModelConfig& config,
                                               const ParameterSet& parameters,
                                               std::span<const SideFile> side_files,
                                               std::int64_t max_shard_bytes) {
  return write_model_directory(directory, config, tensors_to_write(parameters), side_files,
                               max_shard_bytes);
}

}  // namespace longstride
