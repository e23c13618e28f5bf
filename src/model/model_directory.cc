#include "model/model_directory.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <set>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "base/thread_pool.h"
#include "model/bitsandbytes_tensors.h"
#include "model/load_weights.h"
#include "model/quantize_specs.h"

namespace longstride {
namespace {

constexpr const char* kHead = "lm_head.weight";
constexpr const char* kEmbedding = "model.embed_tokens.weight";

// Old files contain the rotary frequencies, which follow from the config.
bool is_harmless(const std::string& name) { return name.ends_with(".rotary_emb.inv_freq"); }

void check_tensor(const SafetensorsReader& reader, const std::string& name, const Shape& shape) {
  const TensorInfo& info = reader.info(name);
  const std::string where = reader.file_of(name).string();
  if (!info.dtype || !is_weight_type(*info.dtype))
    throw Error(fmt::format("{}: tensor {} has dtype {}", where, name, info.dtype_name),
                "weights must be F32, F16 or BF16; of quantized ones, the projections of layers as "
                "bitsandbytes stores them");
  std::vector<std::int64_t> wanted(static_cast<std::size_t>(shape.rank()));
  for (int i = 0; i < shape.rank(); ++i) wanted[static_cast<std::size_t>(i)] = shape[i];
  if (info.shape != wanted)
    throw Error(fmt::format("{}: tensor {} has shape [{}], but config.json makes it {}", where,
                            name, fmt::join(info.shape, ", "), shape.to_string()),
                "config.json and the weights do not belong together");
}

// True if two tensors are equal; compares with all threads.
bool same_bytes(std::span<const std::byte> a, std::span<const std::byte> b) {
  constexpr std::size_t kPiece = std::size_t{4} << 20;
  if (a.size() != b.size()) return false;
  std::atomic<bool> same{true};
  parallel_for(static_cast<std::int64_t>((a.size() + kPiece - 1) / kPiece), [&](std::int64_t i) {
    const std::size_t begin = static_cast<std::size_t>(i) * kPiece,
                      n = std::min(kPiece, a.size() - begin);
    if (std::memcmp(a.data() + begin, b.data() + begin, n) != 0) same = false;
  });
  return same;
}

}  // namespace

ModelDirectory::ModelDirectory(std::filesystem::path path, ModelConfig config,
                               SafetensorsReader reader)
    : path_(std::move(path)), config_(std::move(config)), reader_(std::move(reader)) {}

ModelDirectory ModelDirectory::open(const std::filesystem::path& path) {
  if (!std::filesystem::is_directory(path))
    throw Error(fmt::format("{}: no such directory", path.string()),
                "a model is a Hugging Face directory with config.json and safetensors");
  ModelConfig config = read_config(path);
  ModelDirectory directory(path, std::move(config), SafetensorsReader::open_model(path));
  directory.check_tensors();
  return directory;
}

void ModelDirectory::check_tensors() const {
  std::set<std::string> expected;
  std::vector<std::string> missing;
  const std::vector<ParameterSpec> specs = parameter_specs(config_);
  const std::vector<FileTensor> tensors = file_tensors(specs);
  const auto format_of = [&](const FileTensor& tensor) {
    return stored_format(specs[static_cast<std::size_t>(tensor.first)]);
  };
  for (const FileTensor& tensor : tensors) {
    expected.insert(tensor.name);
    if (!reader_.contains(tensor.name)) missing.push_back(tensor.name);
    if (const std::optional<DType> format = format_of(tensor))
      for (std::string& name : companions(tensor.name, *format)) expected.insert(std::move(name));
  }
  if (!missing.empty()) {
    std::string hint = "config.json and the weights do not belong together, or a file is missing";
    if (reader_.contains("embed_tokens.weight"))
      hint = "the weights were saved from the bare model; save them from its ...ForCausalLM class";
    else if (missing == std::vector<std::string>{kHead})
      hint =
          "if the model shares its embedding with its head, set tie_word_embeddings to true in "
          "config.json";
    throw Error(fmt::format("{}: missing tensors: {}", path_.string(), some_of(missing)), hint);
  }
  std::vector<std::string> unexpected;
  for (const std::string& name : reader_.names()) {
    const bool redundant_head = config_.tied_embeddings && name == kHead;
    if (!expected.contains(name) && !redundant_head && !is_harmless(name))
      unexpected.push_back(name);
  }
  if (!unexpected.empty())
    throw Error(fmt::format("{}: tensors that a {} model of this config.json does not have: {}",
                            path_.string(), name_of(config_.architecture), some_of(unexpected)),
                "config.json and the weights do not belong together, or the model is of a kind "
                "that is not supported");
  for (const FileTensor& tensor : tensors) {
    const std::optional<DType> format = format_of(tensor);
    if (format && tensor.count > 1)
      throw Error(fmt::format("{}: {} holds several projections and is quantized", path_.string(),
                              tensor.name),
                  "name the original model and set model.quantize");
    if (format)
      check_quantized(reader_, tensor.name, *format, tensor.shape);
    else
      check_tensor(reader_, tensor.name, tensor.shape);
  }
  if (config_.tied_embeddings && reader_.contains(kHead))
    check_tensor(reader_, kHead, {config_.vocabulary, config_.hidden_size});
}

std::optional<DType> ModelDirectory::stored_format(const ParameterSpec& spec) const {
  return is_projection(spec) ? quantized_format(reader_, spec.file_name()) : std::nullopt;
}

std::vector<ParameterSpec> ModelDirectory::specs() const {
  std::vector<ParameterSpec> specs = parameter_specs(config_);
  for (ParameterSpec& spec : specs) {
    const std::optional<DType> format = stored_format(spec);
    spec.dtype = format ? *format : *reader_.info(spec.file_name()).dtype;
    spec.trainable = !format;
  }
  return specs;
}

void ModelDirectory::load(ParameterSet& parameters) const {
  const std::vector<ParameterSpec> specs = parameter_specs(config_);
  for (std::int64_t i = 0; i < parameters.size(); ++i) {
    const ParameterSpec& to = parameters.specs()[static_cast<std::size_t>(i)];
    const auto number = static_cast<std::size_t>(number_of(parameters.specs(), i));
    if (number < specs.size())
      LS_CHECK(specs[number].name == to.name && specs[number].shape == to.shape, "{} {}", to.name,
               to.shape.to_string());
    else  // adapters come last
      LS_CHECK(to.adapter || to.derived || !to.source.empty(), "{} is not in the directory",
               to.name);
  }
  load_weights(reader_, parameters);
  if (!config_.tied_embeddings || !reader_.contains(kHead)) return;
  if (reader_.info(kHead).dtype != reader_.info(kEmbedding).dtype ||
      !same_bytes(reader_.bytes(kHead), reader_.bytes(kEmbedding)))
    throw Error(fmt::format("{}: {} differs from {}, though config.json ties them",
                            reader_.file_of(kHead).string(), kHead, kEmbedding),
                "set tie_word_embeddings to false in config.json, or remove the tensor");
}

}  // namespace longstride
