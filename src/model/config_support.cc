#include "model/config_support.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <mutex>
#include <set>
#include <vector>

#include "base/error.h"
#include "base/log.h"

namespace longstride {
namespace {

struct Refused {
  std::string_view field;
  std::string_view reason;
  bool one_is_harmless = false;  // multipliers: 1 changes nothing
};

constexpr std::string_view kDropout = "dropout is not supported";
constexpr std::string_view kExperts = "mixtures of experts are not supported";
constexpr std::string_view kSoftcap = "soft caps on logits are not supported";
constexpr std::string_view kScale = "scaled embeddings, residuals or logits are not supported";
constexpr std::string_view kPosition = "only full rotary positions are supported";
constexpr std::string_view kHeadNorm = "norms of q and k follow from model_type alone";
constexpr std::string_view kQuantized =
    "of quantized weights, only those of bitsandbytes are supported";
constexpr std::string_view kEncoder = "only decoders are supported";

constexpr auto kRefused = std::to_array<Refused>({
    {"attention_dropout", kDropout},
    {"attn_pdrop", kDropout},
    {"embd_pdrop", kDropout},
    {"resid_pdrop", kDropout},
    {"hidden_dropout", kDropout},
    {"hidden_dropout_prob", kDropout},
    {"residual_dropout", kDropout},
    {"dropout", kDropout},
    {"layerdrop", kDropout},
    {"quantization_config", kQuantized},
    {"compression_config", kQuantized},
    {"attn_logit_softcapping", kSoftcap},
    {"final_logit_softcapping", kSoftcap},
    {"logits_soft_cap", kSoftcap},
    {"logit_softcap", kSoftcap},
    {"logit_scale", kScale, true},
    {"logits_scaling", kScale, true},
    {"embedding_multiplier", kScale, true},
    {"residual_multiplier", kScale, true},
    {"attention_multiplier", "a scale of attention other than 1/sqrt(head size) is not supported"},
    {"query_pre_attn_scalar", "a scale of attention other than 1/sqrt(head size) is not supported"},
    {"scale_emb", kScale, true},
    {"scale_depth", kScale},
    {"scale_attn_by_inverse_layer_idx",
     "scales of attention that differ by layer are not supported"},
    {"num_experts", kExperts},
    {"num_local_experts", kExperts},
    {"num_experts_per_tok", kExperts},
    {"n_routed_experts", kExperts},
    {"n_shared_experts", kExperts},
    {"moe_intermediate_size", kExperts},
    {"shared_expert_intermediate_size", kExperts},
    {"clip_qkv", "clipped q, k and v are not supported"},
    {"qk_layernorm", kHeadNorm},
    {"use_qk_norm", kHeadNorm},
    {"partial_rotary_factor", kPosition, true},
    {"rotary_pct", kPosition, true},
    {"rotary_dim", kPosition},
    {"alibi", kPosition},
    {"use_alibi", kPosition},
    {"no_rope_layers", kPosition},
    {"no_rope_layer_interval", kPosition},
    {"use_mrope", kPosition},
    {"mrope_section", kPosition},
    {"use_bidirectional_attention", "attention to later tokens is not supported"},
    {"attention_chunk_size", "attention in chunks is not supported"},
    {"attention_sinks", "attention sinks are not supported"},
    {"num_kv_shared_layers", "layers that share keys and values are not supported"},
    {"num_nextn_predict_layers", "layers that predict several tokens are not supported"},
    {"mtp_num_hidden_layers", "layers that predict several tokens are not supported"},
    {"per_layer_config", "layers of different shapes are not supported"},
    {"block_configs", "layers of different shapes are not supported"},
    {"pruned_heads", "pruned heads are not supported"},
    {"is_encoder_decoder", kEncoder},
    {"add_cross_attention", kEncoder},
    {"cross_attention_hidden_size", kEncoder},
    {"vision_config", "only text models are supported"},
    {"audio_config", "only text models are supported"},
    {"text_config", "only text models are supported"},
});

// Read by the parser, or known not to affect the result.
constexpr auto kKnown = std::to_array<std::string_view>({
    // Read.
    "architectures",
    "model_type",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "intermediate_size",
    "vocab_size",
    "rms_norm_eps",
    "tie_word_embeddings",
    "hidden_act",
    "max_position_embeddings",
    "initializer_range",
    "dtype",
    "torch_dtype",
    "rope_theta",
    "rope_scaling",
    "rope_parameters",
    "original_max_position_embeddings",
    "layer_types",
    // Bookkeeping.
    "transformers_version",
    "_name_or_path",
    "name_or_path",
    "_commit_hash",
    "auto_map",
    "unsloth_version",
    "unsloth_fixed",
    "task_specific_params",
    "finetuning_task",
    "problem_type",
    "id2label",
    "label2id",
    "num_labels",
    "tokenizer_class",
    "prefix",
    "language",
    // How another program runs the model.
    "use_cache",
    "pretraining_tp",
    "output_attentions",
    "output_hidden_states",
    "return_dict",
    "torchscript",
    "use_bfloat16",
    "tf_legacy_loss",
    "chunk_size_feed_forward",
    "is_decoder",
    "tie_encoder_decoder",
    "attn_implementation",
    "_attn_implementation",
    "_attn_implementation_autoset",
    "_flash_attn_2_enabled",
    "tie_last_hidden_states",
    // Tokens and generation.
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
    "sep_token_id",
    "unk_token_id",
    "decoder_start_token_id",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "max_length",
    "min_length",
    "max_new_tokens",
    "do_sample",
    "early_stopping",
    "num_beams",
    "num_beam_groups",
    "diversity_penalty",
    "temperature",
    "top_k",
    "top_p",
    "typical_p",
    "repetition_penalty",
    "length_penalty",
    "no_repeat_ngram_size",
    "encoder_no_repeat_ngram_size",
    "bad_words_ids",
    "num_return_sequences",
    "output_scores",
    "return_dict_in_generate",
    "suppress_tokens",
    "begin_suppress_tokens",
    "remove_invalid_values",
    "exponential_decay_length_penalty",
});

std::span<const std::string_view> known_to(Architecture architecture) {
  static constexpr std::array<std::string_view, 3> kQwen2{"use_sliding_window", "sliding_window",
                                                          "max_window_layers"};
  static constexpr std::array<std::string_view, 4> kQwen3{"use_sliding_window", "sliding_window",
                                                          "max_window_layers", "attention_bias"};
  static constexpr std::array<std::string_view, 2> kLlama{"attention_bias", "mlp_bias"};
  static constexpr std::array<std::string_view, 7> kGemma3{
      "attention_bias",          "sliding_window",        "sliding_window_pattern",
      "_sliding_window_pattern", "query_pre_attn_scalar", "hidden_activation",
      "rope_local_base_freq"};
  static constexpr std::array<std::string_view, 1> kOlmo2{"attention_bias"};
  static constexpr std::array<std::string_view, 1> kWindow{"sliding_window"};
  switch (architecture) {
    case Architecture::kQwen2:
      return kQwen2;
    case Architecture::kQwen3:
      return kQwen3;
    case Architecture::kLlama:
      return kLlama;
    case Architecture::kMistral:
    case Architecture::kPhi3:
      return kWindow;
    case Architecture::kOlmo2:
      return kOlmo2;
    case Architecture::kGemma3:
      return kGemma3;
  }
  return {};
}

bool is_one(const Json& v) { return v.is_number() && v.get<double>() == 1.0; }

// The tensors themselves show what was quantized, and how.
bool is_bitsandbytes(const Json& v) {
  return v.is_object() && v.contains("quant_method") && v.at("quant_method") == "bitsandbytes";
}

}  // namespace

bool is_unset(const Json& v) {
  if (v.is_null() || ((v.is_array() || v.is_object()) && v.empty())) return true;
  if (v.is_string()) return v.get_ref<const std::string&>().empty();
  if (v.is_boolean()) return !v.get<bool>();
  return v.is_number() && v.get<double>() == 0.0;
}

void warn_unknown(const Fields& fields, std::span<const std::string_view> known) {
  static std::mutex mutex;
  static std::set<std::string> reported;
  std::vector<std::string> unknown;
  for (const auto& [key, value] : fields.object().items()) {
    if (is_unset(value) || std::ranges::find(known, std::string_view(key)) != known.end()) continue;
    const std::string name = fields.prefix() + key;
    const std::scoped_lock lock(mutex);
    if (reported.insert(fields.where() + '\n' + name).second) unknown.push_back(name);
  }
  if (!unknown.empty())
    log_warning("{}: ignoring fields that are unknown for this kind of model: {}", fields.where(),
                fmt::join(unknown, ", "));
}

void check_supported(const Fields& fields, Architecture architecture) {
  const auto own = known_to(architecture);
  for (const Refused& r : kRefused) {
    if (!fields.has(r.field) || std::ranges::find(own, r.field) != own.end()) continue;
    const Json& v = fields.value(r.field);
    if (is_unset(v) || (r.one_is_harmless && is_one(v))) continue;
    if (r.reason == kQuantized && is_bitsandbytes(v)) continue;
    fields.fail(r.field, fmt::format("is {}, but {}", shown(v), r.reason),
                "use a model without it; if it does not matter for yours, remove the field");
  }
  std::vector<std::string_view> known(kKnown.begin(), kKnown.end());
  known.insert(known.end(), own.begin(), own.end());
  std::ranges::transform(kRefused, std::back_inserter(known), &Refused::field);
  warn_unknown(fields, known);
}

}  // namespace longstride
