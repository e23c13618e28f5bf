#include <algorithm>
#include <array>
#include <set>
#include <span>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "model/host_values.h"
#include "model/model_directory.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;

constexpr const char* kGeneration = "generation_config.json";

bool is_tokenizer_file(const std::string& name) {
  static const std::set<std::string> kNames{"vocab.json", "merges.txt", "special_tokens_map.json",
                                            "added_tokens.json"};
  return name.starts_with("tokenizer") || name.starts_with("chat_template") ||
         kNames.contains(name);
}

WrittenFile write_bytes(const fs::path& path, std::span<const std::byte> bytes) {
  FileWriter writer(path);
  writer.write(bytes);
  writer.finish();
  return {path.filename().string(), static_cast<std::int64_t>(writer.bytes_written()),
          writer.checksum()};
}

WrittenFile write_json(const fs::path& path, const Json& json) {
  const std::string text = json.dump(2) + "\n";
  return write_bytes(path, std::as_bytes(std::span(text)));
}

// transformers loads all weights as the one type that config.json names. Mixed ones are called
// float32, which holds every value of the others.
std::string_view torch_name(const std::vector<DType>& dtypes) {
  const bool same = std::ranges::all_of(dtypes, [&](DType t) { return t == dtypes.front(); });
  if (same && dtypes.front() == DType::kBF16) return "bfloat16";
  if (same && dtypes.front() == DType::kF16) return "float16";
  return "float32";
}

Json config_json(const ModelConfig& config, const std::vector<DType>& dtypes) {
  LS_CHECK(config.raw.is_object(), "a config without its JSON");
  Json json = config.raw;
  // Only the spelling that was there before, so that what read the original reads the result.
  const char* key =
      json.contains("torch_dtype") && !json.contains("dtype") ? "torch_dtype" : "dtype";
  json.erase("torch_dtype");
  json[key] = torch_name(dtypes);
  return json;
}

Json generation_json(const ModelConfig& config) {
  Json json = {{"_from_model_config", true}};
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"})
    if (config.raw.contains(key) && !config.raw[key].is_null()) json[key] = config.raw[key];
  return json;
}

// What could not be loaded again is not saved.
void check_finite(std::span<const std::byte> values, DType dtype, const std::string& name) {
  const std::int64_t bad =
      first_nonfinite(values.data(), dtype, std::ssize(values) / size_of(dtype));
  if (bad < 0) return;
  float value = 0;
  load_floats(values.data() + bad * size_of(dtype), dtype, {&value, 1});
  throw Error(
      fmt::format("the weights are broken: {} holds {}", name, value),
      "they are not saved, and older checkpoints stay; resume from the last one with a lower "
      "optimizer.learning_rate");
}

std::vector<WrittenFile> write_weights(const fs::path& directory, const ParameterSet& parameters,
                                       std::int64_t max_shard_bytes) {
  std::vector<TensorToWrite> tensors;
  for (std::int64_t i = 0; i < parameters.size(); ++i) {
    const ParameterSpec& spec = parameters.specs()[static_cast<std::size_t>(i)];
    tensors.push_back({spec.name, parameters.view(i).dtype(), spec.shape});
  }
  constexpr std::int64_t kStaging = std::int64_t{16} << 20;
  std::vector<std::byte> staging;
  const auto source = [&](std::int64_t i, const ByteSink& sink) {
    const View view = parameters.view(i);
    for (std::int64_t at = 0; at < view.bytes(); at += kStaging) {
      const std::int64_t count = std::min(kStaging, view.bytes() - at);
      staging.resize(static_cast<std::size_t>(count));
      parameters.device().copy_to_host(staging.data(),
                                       static_cast<const std::byte*>(view.data()) + at, count);
      check_finite(staging, view.dtype(), tensors[static_cast<std::size_t>(i)].name);
      sink(staging);
    }
  };
  return write_safetensors_model(directory, tensors, source, max_shard_bytes);
}

}  // namespace

std::vector<WrittenFile> write_model_directory(const fs::path& directory, const ModelConfig& config,
                                               const ParameterSet& parameters,
                                               const std::optional<fs::path>& source,
                                               std::int64_t max_shard_bytes) {
  std::vector<WrittenFile> written = write_weights(directory, parameters, max_shard_bytes);
  written.push_back(
      write_json(directory / "config.json", config_json(config, parameters.dtypes())));
  std::vector<std::string> names;
  if (source) {
    LS_CHECK(!fs::equivalent(*source, directory), "{} would be copied onto itself",
             source->string());
    for (const auto& entry : fs::directory_iterator(*source)) {
      const std::string name = entry.path().filename().string();
      if (entry.is_regular_file() && (name == kGeneration || is_tokenizer_file(name)))
        names.push_back(name);
    }
    std::ranges::sort(names);
  }
  for (const std::string& name : names) {
    const MappedFile file(*source / name);
    written.push_back(write_bytes(directory / name, file.bytes()));
  }
  if (std::ranges::find(names, kGeneration) == names.end())
    written.push_back(write_json(directory / kGeneration, generation_json(config)));
  return written;
}

}  // namespace longstride
