#include "model/presets.h"

#include <functional>

#include "base/error.h"
#include "base/text.h"

namespace longstride {
namespace {

// Sizes that every preset has: the widths and depths of a decoder.
struct Sizes {
  std::int64_t hidden, layers, query_heads, kv_heads, ffn, vocabulary, positions;
};

Json base(const char* model_type, const char* architecture, const char* dtype, const Sizes& s) {
  return {{"architectures", Json::array({architecture})},
          {"attention_dropout", 0.0},
          {"hidden_act", "silu"},
          {"hidden_size", s.hidden},
          {"initializer_range", 0.02},
          {"intermediate_size", s.ffn},
          {"max_position_embeddings", s.positions},
          {"model_type", model_type},
          {"num_attention_heads", s.query_heads},
          {"num_hidden_layers", s.layers},
          {"num_key_value_heads", s.kv_heads},
          {"rms_norm_eps", 1e-6},
          {"rope_theta", 1000000.0},
          {"tie_word_embeddings", false},
          {"torch_dtype", dtype},
          {"use_cache", true},
          {"vocab_size", s.vocabulary}};
}

Json with(Json json, const Json& changes) {
  json.update(changes);
  return json;
}

Json qwen2(const Sizes& s, double eps, bool tied) {
  return with(base("qwen2", "Qwen2ForCausalLM", "bfloat16", s), {{"bos_token_id", 151643},
                                                                 {"eos_token_id", 151643},
                                                                 {"max_window_layers", s.layers},
                                                                 {"rms_norm_eps", eps},
                                                                 {"sliding_window", s.positions},
                                                                 {"tie_word_embeddings", tied},
                                                                 {"use_sliding_window", false}});
}

Json qwen3(const Sizes& s) {
  return with(base("qwen3", "Qwen3ForCausalLM", "bfloat16", s), {{"attention_bias", false},
                                                                 {"bos_token_id", 151643},
                                                                 {"eos_token_id", 151645},
                                                                 {"head_dim", 128},
                                                                 {"max_window_layers", s.layers},
                                                                 {"rope_scaling", nullptr},
                                                                 {"sliding_window", nullptr},
                                                                 {"use_sliding_window", false}});
}

Json llama3(const Sizes& s, const Json& end_of_text) {
  return with(base("llama", "LlamaForCausalLM", "bfloat16", s),
              {{"attention_bias", false},
               {"bos_token_id", 128000},
               {"eos_token_id", end_of_text},
               {"mlp_bias", false},
               {"rms_norm_eps", 1e-5},
               {"rope_scaling",
                {{"factor", 8.0},
                 {"high_freq_factor", 4.0},
                 {"low_freq_factor", 1.0},
                 {"original_max_position_embeddings", 8192},
                 {"rope_type", "llama3"}}},
               {"rope_theta", 500000.0}});
}

// v0.1, the one with a window.
Json mistral_7b() {
  return with(
      base("mistral", "MistralForCausalLM", "bfloat16", {4096, 32, 32, 8, 14336, 32000, 32768}),
      {{"bos_token_id", 1},
       {"eos_token_id", 2},
       {"rms_norm_eps", 1e-5},
       {"rope_theta", 10000.0},
       {"sliding_window", 4096}});
}

Json phi4() {
  return with(base("phi3", "Phi3ForCausalLM", "bfloat16", {5120, 40, 40, 10, 17920, 100352, 16384}),
              {{"attention_bias", false},
               {"bos_token_id", 100257},
               {"eos_token_id", 100265},
               {"original_max_position_embeddings", 16384},
               {"pad_token_id", 100349},
               {"rms_norm_eps", 1e-5},
               {"rope_scaling", nullptr},
               {"rope_theta", 250000.0},
               {"sliding_window", nullptr}});
}

Json olmo2_7b() {
  return with(base("olmo2", "Olmo2ForCausalLM", "float32", {4096, 32, 32, 32, 11008, 100352, 4096}),
              {{"attention_bias", false},
               {"eos_token_id", 100257},
               {"pad_token_id", 100277},
               {"rope_scaling", nullptr},
               {"rope_theta", 500000.0}});
}

// The text models; those of 4B and more are published together with an image model.
Json gemma3(const Sizes& s, std::int64_t window, bool scaled) {
  Json json = with(base("gemma3_text", "Gemma3ForCausalLM", "bfloat16", s),
                   {{"attention_bias", false},
                    {"attn_logit_softcapping", nullptr},
                    {"bos_token_id", 2},
                    {"eos_token_id", 1},
                    {"final_logit_softcapping", nullptr},
                    {"head_dim", 256},
                    {"hidden_activation", "gelu_pytorch_tanh"},
                    {"pad_token_id", 0},
                    {"query_pre_attn_scalar", 256},
                    {"rope_local_base_freq", 10000.0},
                    {"rope_scaling", nullptr},
                    {"sliding_window", window},
                    {"sliding_window_pattern", 6},
                    {"tie_word_embeddings", true}});
  json.erase("hidden_act");
  if (scaled) json["rope_scaling"] = {{"factor", 8.0}, {"rope_type", "linear"}};
  return json;
}

// The tiny presets together cover every feature: biases, tied and separate heads, an explicit head
// size, scaled positions, a window. Their vocabulary holds all bytes and some special tokens.
constexpr Sizes kTiny{64, 2, 4, 2, 160, 320, 131072};

Json tiny(const char* model_type, const char* architecture, const Json& changes) {
  return with(with(base(model_type, architecture, "float32", kTiny),
                   {{"bos_token_id", nullptr}, {"eos_token_id", nullptr}}),
              changes);
}

Json tiny_qwen2() {
  return tiny("qwen2", "Qwen2ForCausalLM",
              {{"tie_word_embeddings", true}, {"use_sliding_window", false}});
}

Json tiny_qwen3() {
  return tiny("qwen3", "Qwen3ForCausalLM", {{"attention_bias", false}, {"head_dim", 32}});
}

Json tiny_llama() {
  return tiny("llama", "LlamaForCausalLM",
              {{"attention_bias", false},
               {"mlp_bias", false},
               {"rms_norm_eps", 1e-5},
               {"rope_scaling",
                {{"factor", 8.0},
                 {"high_freq_factor", 4.0},
                 {"low_freq_factor", 1.0},
                 {"original_max_position_embeddings", 8192},
                 {"rope_type", "llama3"}}},
               {"rope_theta", 500000.0}});
}

Json tiny_mistral() {
  return tiny("mistral", "MistralForCausalLM",
              {{"rms_norm_eps", 1e-5}, {"rope_theta", 10000.0}, {"sliding_window", 64}});
}

Json tiny_phi3() {
  return tiny("phi3", "Phi3ForCausalLM", {{"rms_norm_eps", 1e-5}, {"sliding_window", nullptr}});
}

Json tiny_olmo2() {
  return tiny("olmo2", "Olmo2ForCausalLM", {{"attention_bias", false}, {"rope_theta", 500000.0}});
}

Json tiny_gemma3() {
  Json json = tiny("gemma3_text", "Gemma3ForCausalLM",
                   {{"head_dim", 32},
                    {"hidden_activation", "gelu_pytorch_tanh"},
                    {"query_pre_attn_scalar", 24},
                    {"rope_local_base_freq", 10000.0},
                    {"rope_scaling", {{"factor", 8.0}, {"rope_type", "linear"}}},
                    {"sliding_window", 64},
                    {"sliding_window_pattern", 2},
                    {"tie_word_embeddings", true}});
  json.erase("hidden_act");
  return json;
}

Json bench_cpu() {
  return with(base("llama", "LlamaForCausalLM", "float32", {512, 8, 8, 2, 1536, 32768, 1048576}),
              {{"attention_bias", false},
               {"bos_token_id", nullptr},
               {"eos_token_id", nullptr},
               {"head_dim", 64},
               {"mlp_bias", false},
               {"rms_norm_eps", 1e-5},
               {"rope_theta", 500000.0}});
}

struct Preset {
  const char* name;
  std::function<Json()> json;
};

const std::vector<Preset>& presets() {
  static const std::vector<Preset> all{
      {"qwen2.5-0.5b",
       [] {
         return qwen2({896, 24, 14, 2, 4864, 151936, 32768}, 1e-6, true);
       }},
      {"qwen2.5-1.5b",
       [] {
         return qwen2({1536, 28, 12, 2, 8960, 151936, 131072}, 1e-6, true);
       }},
      {"qwen2.5-7b",
       [] {
         return qwen2({3584, 28, 28, 4, 18944, 152064, 131072}, 1e-6, false);
       }},
      {"qwen2.5-14b",
       [] {
         return qwen2({5120, 48, 40, 8, 13824, 152064, 131072}, 1e-5, false);
       }},
      {"qwen2.5-32b",
       [] {
         return qwen2({5120, 64, 40, 8, 27648, 152064, 131072}, 1e-5, false);
       }},
      {"qwen3-8b",
       [] {
         return qwen3({4096, 36, 32, 8, 12288, 151936, 40960});
       }},
      {"qwen3-14b",
       [] {
         return qwen3({5120, 40, 40, 8, 17408, 151936, 40960});
       }},
      {"qwen3-32b",
       [] {
         return qwen3({5120, 64, 64, 8, 25600, 151936, 40960});
       }},
      {"llama-3.1-8b",
       [] {
         return llama3({4096, 32, 32, 8, 14336, 128256, 131072}, 128001);
       }},
      {"llama-3.3-70b",
       [] {
         return with(llama3({8192, 80, 64, 8, 28672, 128256, 131072}, {128001, 128008, 128009}),
                     {{"head_dim", 128}});
       }},
      {"mistral-7b", mistral_7b},
      {"phi-4", phi4},
      {"olmo2-7b", olmo2_7b},
      {"gemma3-1b",
       [] {
         return gemma3({1152, 26, 4, 1, 6912, 262144, 32768}, 512, false);
       }},
      {"gemma3-4b",
       [] {
         return gemma3({2560, 34, 8, 4, 10240, 262208, 131072}, 1024, true);
       }},
      {"gemma3-12b",
       [] {
         return gemma3({3840, 48, 16, 8, 15360, 262208, 131072}, 1024, true);
       }},
      {"tiny-qwen2", tiny_qwen2},
      {"tiny-qwen3", tiny_qwen3},
      {"tiny-llama", tiny_llama},
      {"tiny-mistral", tiny_mistral},
      {"tiny-phi3", tiny_phi3},
      {"tiny-olmo2", tiny_olmo2},
      {"tiny-gemma3", tiny_gemma3},
      {"bench-cpu", bench_cpu},
  };
  return all;
}

Json with_window(const Json& json, std::string_view name, std::int64_t window) {
  if (window == 0) return json;
  const std::string type = json.at("model_type");
  if (type == "mistral" || type == "phi3") return with(json, {{"sliding_window", window}});
  if (type == "qwen2" || type == "qwen3")
    return with(
        json, {{"use_sliding_window", true}, {"sliding_window", window}, {"max_window_layers", 0}});
  if (type == "gemma3_text")
    throw Error(fmt::format("preset {} has windows of its own, in some of its layers", name),
                "leave the window out");
  throw Error(fmt::format("preset {} is a {} model, and those have no windows", name, type),
              "choose a preset of Qwen, Mistral or Phi, or leave the window out");
}

}  // namespace

ModelConfig find_preset(std::string_view name, std::int64_t window) {
  for (const Preset& preset : presets())
    if (name == preset.name)
      return parse_config(with_window(preset.json(), name, window), fmt::format("preset {}", name));
  const std::string near = nearest(name, preset_names());
  throw Error(fmt::format("there is no preset named \"{}\"", name),
              near.empty() ? fmt::format("presets are {}", fmt::join(preset_names(), ", "))
                           : fmt::format("did you mean {}? presets are {}", near,
                                         fmt::join(preset_names(), ", ")));
}

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const Preset& preset : presets()) names.emplace_back(preset.name);
  return names;
}

}  // namespace longstride
