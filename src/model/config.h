// ModelConfig: what a Hugging Face config.json says about a model, checked. Plain data.
//
// An unsupported field that would change the result is refused by name. An unknown field with a
// value causes a warning and is otherwise ignored, as in transformers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "tensor/dtype.h"

namespace longstride {

enum class Architecture : std::uint8_t { kQwen2, kQwen3, kLlama, kMistral, kPhi3, kOlmo2, kGemma3 };

// The model_type of config.json: "qwen2", "qwen3", "llama", "mistral", "phi3" (also Phi-4),
// "olmo2", "gemma3_text".
std::string_view name_of(Architecture architecture);

enum class RopeType : std::uint8_t { kDefault, kLinear, kLlama3, kYarn };

std::string_view name_of(RopeType type);

struct RopeConfig {
  RopeType type = RopeType::kDefault;
  double theta = 10000.0;
  double factor = 1.0;                  // linear, llama3, yarn
  std::int64_t original_positions = 0;  // llama3, yarn: context length before scaling
  double low_freq_factor = 1.0;         // llama3
  double high_freq_factor = 4.0;        // llama3
  double beta_fast = 32.0;              // yarn, like those below
  double beta_slow = 1.0;
  bool truncate = true;
  std::optional<double> attention_factor, mscale, mscale_all_dim;
};

struct ModelConfig {
  Architecture architecture = Architecture::kLlama;
  std::int64_t hidden_size = 0;
  std::int64_t layers = 0;
  std::int64_t query_heads = 0;
  std::int64_t kv_heads = 0;   // divides query_heads
  std::int64_t head_size = 0;  // even; need not be hidden_size / query_heads
  std::int64_t ffn_size = 0;
  std::int64_t vocabulary = 0;
  double rms_eps = 1e-6;
  bool tied_embeddings = false;
  bool qkv_bias = false;
  bool output_bias = false;
  bool mlp_bias = false;
  bool fused_files = false;   // files hold q, k and v in one tensor, and gate and up in another
  bool qk_norm = false;       // RMS norm of every head's q and k, before the rotation
  bool wide_qk_norm = false;  // then: one norm of all heads together
  // Norms of the input of attention and of the feed-forward part, and of what each of them adds to
  // the residual stream.
  bool input_norms = true, output_norms = false;
  double norm_offset = 0.0;       // added to the weights of all norms
  bool gelu = false;              // the gate's activation: gelu in its tanh form instead of silu
  bool scaled_embedding = false;  // times sqrt(hidden_size)
  double attention_scalar = 0.0;  // scores are divided by its root; 0: by that of the head size
  // One per layer: a query attends to itself and the window - 1 tokens before it; 0: to all earlier
  // tokens.
  std::vector<std::int64_t> windows;
  RopeConfig rope;
  std::vector<bool> local_layers;        // one per layer: rotates by `local_rope`; empty: none does
  std::optional<RopeConfig> local_rope;  // of layers that have a window in config.json (Gemma 3)
  std::int64_t max_positions = 0;
  double initializer_range = 0.02;
  std::optional<DType> dtype;  // of the weights according to config.json; the files decide
  Json raw;                    // config.json as it was read, for writing it back
};

// Factor of the scores before the softmax.
float attention_scale(const ModelConfig& config);
// Factor of the embeddings, rounded to the type that activations have, as transformers does.
float embedding_scale(const ModelConfig& config, DType compute);
// Whether the layer rotates q and k by local_rope.
bool is_local(const ModelConfig& config, std::int64_t layer);

// `where` (a path) begins every error's message.
ModelConfig parse_config(const Json& json, const std::string& where);
// Reads `directory`/config.json.
ModelConfig read_config(const std::filesystem::path& directory);

// All parameters; tied embeddings count once.
std::int64_t parameter_count(const ModelConfig& config);
// Weights that enter matrix products: the projections of all layers and the head (even if tied),
// but not the embedding lookup. Forward and backward cost 6 operations per token for each.
std::int64_t matrix_parameter_count(const ModelConfig& config);

}  // namespace longstride
