#include "model/config.h"

#include <algorithm>
#include <cctype>
#include <cmath>

#include "base/error.h"
#include "model/config_fields.h"
#include "model/config_rope.h"
#include "model/config_support.h"

namespace longstride {
namespace {

// Far above any model, and small enough that no product of sizes overflows 63 bits.
constexpr std::int64_t kMostWidth = std::int64_t{1} << 20;
constexpr std::int64_t kMostLayers = std::int64_t{1} << 14;
constexpr std::int64_t kMostTokens = std::int64_t{1} << 31;
constexpr std::int64_t kMostPositions = std::int64_t{1} << 62;

constexpr std::string_view kFull = "full_attention";
constexpr std::string_view kSliding = "sliding_attention";

Architecture parse_architecture(const Fields& fields) {
  const std::string type = fields.text("model_type");
  for (const Architecture a : {Architecture::kQwen2, Architecture::kQwen3, Architecture::kLlama,
                               Architecture::kMistral, Architecture::kPhi3, Architecture::kOlmo2})
    if (type == name_of(a)) return a;
  fields.fail("model_type", fmt::format("\"{}\" is not supported", type),
              "longstride trains qwen2 (also Qwen2.5), qwen3, llama, mistral, phi3 (Phi-4) and "
              "olmo2 models");
}

// Checks the model class: a classifier or a bare model has other tensors than a language model.
void check_class(const Fields& fields, Architecture architecture) {
  if (!fields.has("architectures")) return;
  const Json& list = fields.value("architectures");
  if (!list.is_array())
    fields.fail("architectures", fmt::format("must be a list, not {}", shown(list)));
  if (list.empty()) return;
  const std::string wanted = std::string(name_of(architecture)) + "forcausallm";
  for (const Json& item : list) {
    if (!item.is_string())
      fields.fail("architectures", fmt::format("must hold texts, not {}", shown(item)));
    std::string name = item.get<std::string>();
    std::ranges::transform(name, name.begin(),
                           [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    if (name == wanted) return;
  }
  fields.fail("architectures",
              fmt::format("is {}, which is not a language model of type {}", shown(list),
                          name_of(architecture)),
              "save the model from its ...ForCausalLM class");
}

// layer_types as a list of "does this layer slide", checked.
std::vector<bool> parse_layer_types(const Fields& fields, std::int64_t layers) {
  const Json& list = fields.value("layer_types");
  if (!list.is_array())
    fields.fail("layer_types", fmt::format("must be a list, not {}", shown(list)));
  if (static_cast<std::int64_t>(list.size()) != layers)
    fields.fail("layer_types",
                fmt::format("has {} entries, but num_hidden_layers is {}", list.size(), layers));
  std::vector<bool> sliding;
  for (const Json& item : list) {
    if (item != kFull && item != kSliding)
      fields.fail("layer_types", fmt::format("holds {}, which is not supported", shown(item)),
                  "supported are full_attention and sliding_attention");
    sliding.push_back(item == kSliding);
  }
  return sliding;
}

// As transformers decides it, defaults included.
std::vector<std::int64_t> parse_windows(const Fields& fields, Architecture architecture,
                                        std::int64_t layers) {
  constexpr std::int64_t kDefaultWindow = 4096;
  const bool qwen = architecture == Architecture::kQwen2 || architecture == Architecture::kQwen3;
  const bool everywhere =  // if at all
      architecture == Architecture::kMistral || architecture == Architecture::kPhi3;
  const bool slides = architecture == Architecture::kMistral ||
                      (architecture == Architecture::kPhi3 && fields.has("sliding_window")) ||
                      (qwen && fields.boolean_or("use_sliding_window", false));
  std::int64_t window = 0;
  if (slides) {
    const bool is_null = fields.mentions("sliding_window") && !fields.has("sliding_window");
    window = is_null ? 0 : fields.integer_or("sliding_window", kDefaultWindow, 1, kMostPositions);
  }
  std::vector<std::int64_t> windows(static_cast<std::size_t>(layers), everywhere ? window : 0);
  if (qwen && !fields.has("layer_types")) {
    const std::int64_t first = fields.integer_or("max_window_layers", 28, 0, kMostPositions);
    for (std::int64_t l = first; l < layers; ++l) windows[static_cast<std::size_t>(l)] = window;
  }
  if (!fields.has("layer_types")) return windows;

  const std::vector<bool> sliding = parse_layer_types(fields, layers);
  for (std::size_t l = 0; l < sliding.size(); ++l) {
    if (qwen && sliding[l] && window == 0)
      fields.fail("layer_types",
                  fmt::format("says that layer {} slides, but there is no window", l),
                  "set use_sliding_window to true and sliding_window to a number of tokens");
    if (qwen) windows[l] = sliding[l] ? window : 0;
    if (sliding[l] != (windows[l] > 0))
      fields.fail("layer_types",
                  fmt::format("says \"{}\" of layer {}, but a {} model {}",
                              sliding[l] ? kSliding : kFull, l, name_of(architecture),
                              windows[l] > 0 ? "has its sliding_window in every layer"
                                             : "without sliding_window has none"),
                  "transformers ignores layer_types here; make it agree, or remove it");
  }
  return windows;
}

std::optional<DType> parse_dtype(const Fields& fields) {
  const std::string_view key = fields.has("dtype") ? "dtype" : "torch_dtype";
  std::string name = fields.text_or(key, "auto");
  if (name == "auto") return std::nullopt;
  if (name.starts_with("torch.")) name = name.substr(6);
  if (name == "float32" || name == "float") return DType::kF32;
  if (name == "bfloat16") return DType::kBF16;
  if (name == "float16" || name == "half") return DType::kF16;
  fields.fail(key, fmt::format("\"{}\" is not supported", name),
              "supported are float32, float16 and bfloat16");
}

void parse_heads(const Fields& fields, ModelConfig& c) {
  c.query_heads = fields.integer("num_attention_heads", 1, kMostWidth);
  // Old llama configs omit the field; for others transformers would use the default of one
  // particular model.
  const bool as_many = c.architecture == Architecture::kLlama ||
                       c.architecture == Architecture::kPhi3 ||
                       c.architecture == Architecture::kOlmo2;
  const bool needed = !as_many && !fields.mentions("num_key_value_heads");
  c.kv_heads = needed || fields.has("num_key_value_heads")
                   ? fields.integer("num_key_value_heads", 1, kMostWidth)
                   : c.query_heads;
  if (c.query_heads % c.kv_heads != 0)
    fields.fail("num_attention_heads",
                fmt::format("is {}, which is not a multiple of num_key_value_heads, {}",
                            c.query_heads, c.kv_heads));
  if (fields.has("head_dim")) {
    c.head_size = fields.integer("head_dim", 1, kMostWidth);
  } else if (c.architecture == Architecture::kQwen3) {
    c.head_size = 128;  // transformers' default for this family, for any hidden size
  } else {
    if (c.hidden_size % c.query_heads != 0)
      fields.fail("hidden_size",
                  fmt::format("is {}, which is not a multiple of num_attention_heads, {}",
                              c.hidden_size, c.query_heads),
                  "give head_dim if the heads have a size of their own");
    c.head_size = c.hidden_size / c.query_heads;
  }
  if (c.head_size % 2 != 0)
    fields.fail(
        fields.has("head_dim") ? "head_dim" : "hidden_size",
        fmt::format("gives heads of size {}, but rotary positions need an even size", c.head_size));
  if (c.query_heads * c.head_size > kMostWidth)
    fields.fail("num_attention_heads",
                fmt::format("times the head size, {}, is more than {}", c.head_size, kMostWidth));
}

std::int64_t projections_per_layer(const ModelConfig& c) {
  const std::int64_t q = c.query_heads * c.head_size, kv = c.kv_heads * c.head_size;
  return c.hidden_size * (2 * q + 2 * kv + 3 * c.ffn_size);
}

}  // namespace

std::string_view name_of(Architecture architecture) {
  switch (architecture) {
    case Architecture::kQwen2:
      return "qwen2";
    case Architecture::kQwen3:
      return "qwen3";
    case Architecture::kLlama:
      return "llama";
    case Architecture::kMistral:
      return "mistral";
    case Architecture::kPhi3:
      return "phi3";
    case Architecture::kOlmo2:
      return "olmo2";
  }
  return "?";
}

std::string_view name_of(RopeType type) {
  switch (type) {
    case RopeType::kDefault:
      return "default";
    case RopeType::kLinear:
      return "linear";
    case RopeType::kLlama3:
      return "llama3";
    case RopeType::kYarn:
      return "yarn";
  }
  return "?";
}

ModelConfig parse_config(const Json& json, const std::string& where) {
  const Fields fields(json, where);
  ModelConfig c;
  c.architecture = parse_architecture(fields);
  check_class(fields, c.architecture);
  check_supported(fields, c.architecture);
  const std::string activation = fields.text_or("hidden_act", "silu");
  if (activation != "silu" && activation != "swish")
    fields.fail("hidden_act", fmt::format("\"{}\" is not supported", activation),
                "longstride computes silu only");

  c.hidden_size = fields.integer("hidden_size", 1, kMostWidth);
  c.layers = fields.integer("num_hidden_layers", 1, kMostLayers);
  c.ffn_size = fields.integer("intermediate_size", 1, kMostWidth);
  c.vocabulary = fields.integer("vocab_size", 1, kMostTokens);
  c.max_positions = fields.integer("max_position_embeddings", 1, kMostPositions);
  c.rms_eps = fields.number_above("rms_norm_eps", 0.0);
  c.initializer_range = fields.number_or("initializer_range", 0.02);
  if (c.initializer_range < 0)
    fields.fail("initializer_range",
                fmt::format("is {}; it must not be negative", c.initializer_range),
                "it matters for random weights alone: remove the field where weights are loaded");
  c.tied_embeddings = fields.boolean_or("tie_word_embeddings", false);
  c.dtype = parse_dtype(fields);
  parse_heads(fields, c);

  const bool llama = c.architecture == Architecture::kLlama,
             qwen3 = c.architecture == Architecture::kQwen3,
             olmo2 = c.architecture == Architecture::kOlmo2;
  c.output_bias = (llama || qwen3 || olmo2) && fields.boolean_or("attention_bias", false);
  c.qkv_bias = c.architecture == Architecture::kQwen2 || c.output_bias;
  c.mlp_bias = llama && fields.boolean_or("mlp_bias", false);
  c.qk_norm = qwen3 || olmo2;
  c.wide_qk_norm = olmo2;
  c.input_norms = !olmo2;
  c.output_norms = olmo2;
  c.fused_files = c.architecture == Architecture::kPhi3;
  c.windows = parse_windows(fields, c.architecture, c.layers);
  c.rope = parse_rope(fields, c.architecture, c.max_positions);
  c.raw = json;
  return c;
}

ModelConfig read_config(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / "config.json";
  if (!std::filesystem::exists(path))
    throw Error(fmt::format("{}: no such file", path.string()),
                "a model is a Hugging Face directory with config.json and safetensors");
  return parse_config(read_json(path), path.string());
}

std::int64_t parameter_count(const ModelConfig& c) {
  const std::int64_t q = c.query_heads * c.head_size, kv = c.kv_heads * c.head_size;
  const std::int64_t norms = (c.input_norms ? 2 : 0) + (c.output_norms ? 2 : 0);
  std::int64_t layer = projections_per_layer(c) + norms * c.hidden_size;
  if (c.qkv_bias) layer += q + 2 * kv;
  if (c.output_bias) layer += c.hidden_size;
  if (c.mlp_bias) layer += 2 * c.ffn_size + c.hidden_size;
  if (c.qk_norm) layer += c.wide_qk_norm ? q + kv : 2 * c.head_size;
  return c.layers * layer + c.hidden_size +
         (c.tied_embeddings ? 1 : 2) * c.vocabulary * c.hidden_size;
}

std::int64_t matrix_parameter_count(const ModelConfig& c) {
  return c.layers * projections_per_layer(c) + c.vocabulary * c.hidden_size;
}

float attention_scale(const ModelConfig& config) {
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(config.head_size)));
}

}  // namespace longstride
