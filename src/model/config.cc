#include "model/config.h"

#include <algorithm>
#include <cctype>
#include <cmath>

#include "base/error.h"
#include "model/config_fields.h"
#include "model/config_rope.h"
#include "model/config_support.h"
#include "model/config_windows.h"

namespace longstride {
namespace {

// Far above any model, and small enough that no product of sizes overflows 63 bits.
constexpr std::int64_t kMostWidth = std::int64_t{1} << 20;
constexpr std::int64_t kMostLayers = std::int64_t{1} << 14;
constexpr std::int64_t kMostTokens = std::int64_t{1} << 31;
constexpr std::int64_t kMostPositions = std::int64_t{1} << 62;

Architecture parse_architecture(const Fields& fields) {
  const std::string type = fields.text("model_type");
  if (type == "gemma3")
    fields.fail("model_type", "\"gemma3\" is a model of images and text; only text is supported",
                "examples/gemma3_text.py saves its text model as a directory of its own");
  for (const Architecture a :
       {Architecture::kQwen2, Architecture::kQwen3, Architecture::kLlama, Architecture::kMistral,
        Architecture::kPhi3, Architecture::kOlmo2, Architecture::kGemma3})
    if (type == name_of(a)) return a;
  fields.fail("model_type", fmt::format("\"{}\" is not supported", type),
              "longstride trains qwen2 (also Qwen2.5), qwen3, llama, mistral, phi3 (Phi-4), "
              "olmo2 and gemma3_text models");
}

// Checks the model class: a classifier or a bare model has other tensors than a language model.
void check_class(const Fields& fields, Architecture architecture) {
  if (!fields.has("architectures")) return;
  const Json& list = fields.value("architectures");
  if (!list.is_array())
    fields.fail("architectures", fmt::format("must be a list, not {}", shown(list)));
  if (list.empty()) return;
  const std::string wanted = architecture == Architecture::kGemma3
                                 ? "gemma3forcausallm"
                                 : std::string(name_of(architecture)) + "forcausallm";
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
  } else if (c.architecture == Architecture::kQwen3 || c.architecture == Architecture::kGemma3) {
    // transformers' default for the family, for any hidden size
    c.head_size = c.architecture == Architecture::kQwen3 ? 128 : 256;
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

void parse_activation(const Fields& fields, ModelConfig& c) {
  if (c.architecture == Architecture::kGemma3) {
    const std::string activation = fields.text_or("hidden_activation", "gelu_pytorch_tanh");
    if (activation != "gelu_pytorch_tanh")
      fields.fail("hidden_activation", fmt::format("\"{}\" is not supported", activation),
                  "longstride computes gelu_pytorch_tanh in gemma3_text models");
    c.gelu = true;
    return;
  }
  const std::string activation = fields.text_or("hidden_act", "silu");
  if (activation != "silu" && activation != "swish")
    fields.fail("hidden_act", fmt::format("\"{}\" is not supported", activation),
                fmt::format("longstride computes silu only in {} models", name_of(c.architecture)));
}

// What Gemma 3 alone has.
void parse_gemma3(const Fields& fields, ModelConfig& c) {
  c.norm_offset = 1.0;
  c.scaled_embedding = true;
  c.attention_scalar = fields.number_above_or("query_pre_attn_scalar", 256.0, 0.0);
  c.local_rope = parse_local_rope(fields, c.max_positions);
  for (const std::int64_t window : c.windows) c.local_layers.push_back(window > 0);
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
    case Architecture::kGemma3:
      return "gemma3_text";
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
  parse_activation(fields, c);

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
  c.tied_embeddings =
      fields.boolean_or("tie_word_embeddings", c.architecture == Architecture::kGemma3);
  c.dtype = parse_dtype(fields);
  parse_heads(fields, c);

  const bool llama = c.architecture == Architecture::kLlama,
             qwen3 = c.architecture == Architecture::kQwen3,
             olmo2 = c.architecture == Architecture::kOlmo2,
             gemma3 = c.architecture == Architecture::kGemma3;
  c.output_bias = (llama || qwen3 || olmo2 || gemma3) && fields.boolean_or("attention_bias", false);
  c.qkv_bias = c.architecture == Architecture::kQwen2 || c.output_bias;
  c.mlp_bias = llama && fields.boolean_or("mlp_bias", false);
  c.qk_norm = qwen3 || olmo2 || gemma3;
  c.wide_qk_norm = olmo2;
  c.input_norms = !olmo2;
  c.output_norms = olmo2 || gemma3;
  c.fused_files = c.architecture == Architecture::kPhi3;
  c.windows = parse_windows(fields, c.architecture, c.layers);
  c.rope = parse_rope(fields, c.architecture, c.max_positions);
  if (gemma3) parse_gemma3(fields, c);
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
  const double scalar =
      config.attention_scalar > 0 ? config.attention_scalar : static_cast<double>(config.head_size);
  return static_cast<float>(1.0 / std::sqrt(scalar));
}

float embedding_scale(const ModelConfig& config, DType compute) {
  if (!config.scaled_embedding) return 1.0f;
  const auto scale = static_cast<float>(std::sqrt(static_cast<double>(config.hidden_size)));
  return compute == DType::kBF16 ? to_float(to_bf16(scale)) : scale;
}

bool is_local(const ModelConfig& config, std::int64_t layer) {
  const auto at = static_cast<std::size_t>(layer);
  return at < config.local_layers.size() && config.local_layers[at];
}

}  // namespace longstride
