#include "model/config.h"

#include <gtest/gtest.h>

#include "tests/model/fixtures.h"

namespace longstride {
namespace {

using testing::config_json;
using testing::expect_error;

ModelConfig parse(const char* model_type, const Json& changes = Json::object()) {
  return parse_config(config_json(model_type, changes), "config.json");
}

TEST(Config, ReadsTheCommonFields) {
  const ModelConfig c = parse(
      "llama", {{"rms_norm_eps", 1e-5}, {"initializer_range", 0.01}, {"torch_dtype", "bfloat16"}});
  EXPECT_EQ(c.architecture, Architecture::kLlama);
  EXPECT_EQ(c.hidden_size, 64);
  EXPECT_EQ(c.layers, 4);
  EXPECT_EQ(c.query_heads, 4);
  EXPECT_EQ(c.kv_heads, 2);
  EXPECT_EQ(c.head_size, 16);
  EXPECT_EQ(c.ffn_size, 128);
  EXPECT_EQ(c.vocabulary, 100);
  EXPECT_EQ(c.max_positions, 4096);
  EXPECT_EQ(c.rms_eps, 1e-5);
  EXPECT_EQ(c.initializer_range, 0.01);
  EXPECT_EQ(c.dtype, DType::kBF16);
  EXPECT_FALSE(c.tied_embeddings);
  EXPECT_EQ(c.windows, std::vector<std::int64_t>(4, 0));
  EXPECT_EQ(c.raw.at("hidden_size"), 64);
}

TEST(Config, BiasesAndNormsFollowTheFamily) {
  const ModelConfig qwen2 = parse("qwen2");
  EXPECT_TRUE(qwen2.qkv_bias);
  EXPECT_FALSE(qwen2.output_bias);
  EXPECT_FALSE(qwen2.qk_norm);
  const ModelConfig qwen3 = parse("qwen3", {{"head_dim", 32}});
  EXPECT_FALSE(qwen3.qkv_bias);
  EXPECT_TRUE(qwen3.qk_norm);
  const ModelConfig biased = parse("qwen3", {{"head_dim", 32}, {"attention_bias", true}});
  EXPECT_TRUE(biased.qkv_bias);
  EXPECT_TRUE(biased.output_bias);
  const ModelConfig llama = parse("llama", {{"attention_bias", true}, {"mlp_bias", true}});
  EXPECT_TRUE(llama.qkv_bias);
  EXPECT_TRUE(llama.output_bias);
  EXPECT_TRUE(llama.mlp_bias);
  const ModelConfig mistral = parse("mistral");
  EXPECT_FALSE(mistral.qkv_bias || mistral.output_bias || mistral.mlp_bias || mistral.qk_norm);
}

TEST(Config, Phi3) {
  const ModelConfig phi = parse("phi3", {{"architectures", {"Phi3ForCausalLM"}},
                                         {"attention_bias", false},
                                         {"resid_pdrop", 0.0},
                                         {"num_key_value_heads", nullptr},
                                         {"rope_scaling", nullptr},
                                         {"rope_theta", 250000}});
  EXPECT_EQ(phi.architecture, Architecture::kPhi3);
  EXPECT_TRUE(phi.fused_files);
  EXPECT_FALSE(phi.qkv_bias || phi.output_bias || phi.mlp_bias || phi.qk_norm);
  EXPECT_EQ(phi.kv_heads, phi.query_heads);
  EXPECT_EQ(phi.windows, std::vector<std::int64_t>(4, 0));
  EXPECT_EQ(parse("phi3", {{"sliding_window", 2047}}).windows, std::vector<std::int64_t>(4, 2047));
  for (const char* type : {"longrope", "su", "yarn", "linear"})
    expect_error(
        [&] {
          parse("phi3", {{"rope_scaling", {{"type", type}, {"factor", 2.0}}}});
        },
        {"rope_scaling.type", type, "not supported in phi3 models", "longrope"});
  expect_error(
      [] {
        parse("phi3", {{"partial_rotary_factor", 0.75}});
      },
      {"partial_rotary_factor is 0.75"});
  expect_error([] { parse("phi3", {{"resid_pdrop", 0.1}}); }, {"resid_pdrop is 0.1", "dropout"});
}

TEST(Config, Olmo2) {
  Json json = config_json("olmo2", {{"architectures", {"Olmo2ForCausalLM"}}});
  json.erase("num_key_value_heads");
  const ModelConfig olmo = parse_config(json, "config.json");
  EXPECT_EQ(olmo.architecture, Architecture::kOlmo2);
  EXPECT_TRUE(olmo.qk_norm && olmo.wide_qk_norm && olmo.output_norms);
  EXPECT_FALSE(olmo.input_norms || olmo.qkv_bias || olmo.fused_files);
  EXPECT_EQ(olmo.kv_heads, 4);
  EXPECT_TRUE(parse("olmo2", {{"attention_bias", true}}).output_bias);
  expect_error([] { parse("olmo2", {{"clip_qkv", 8.0}}); }, {"clip_qkv is 8.0", "clipped"});
  EXPECT_TRUE(parse("qwen3").input_norms);
  EXPECT_FALSE(parse("qwen3").wide_qk_norm || parse("qwen3").output_norms);
}

TEST(Config, Gemma3) {
  Json json =
      config_json("gemma3_text", {{"architectures", {"Gemma3ForCausalLM"}},
                                  {"num_hidden_layers", 7},
                                  {"attn_logit_softcapping", nullptr},
                                  {"final_logit_softcapping", nullptr},
                                  {"rope_scaling", {{"rope_type", "linear"}, {"factor", 8.0}}},
                                  {"sliding_window", 512}});
  json.erase("tie_word_embeddings");
  const ModelConfig gemma = parse_config(json, "config.json");
  EXPECT_EQ(gemma.architecture, Architecture::kGemma3);
  EXPECT_TRUE(gemma.qk_norm && gemma.input_norms && gemma.output_norms && gemma.gelu);
  EXPECT_TRUE(gemma.scaled_embedding && gemma.tied_embeddings);
  EXPECT_FALSE(gemma.wide_qk_norm || gemma.qkv_bias || gemma.fused_files);
  EXPECT_EQ(gemma.norm_offset, 1);
  EXPECT_EQ(gemma.head_size, 256);
  EXPECT_EQ(gemma.windows, (std::vector<std::int64_t>{512, 512, 512, 512, 512, 0, 512}));
  EXPECT_EQ(gemma.rope.theta, 1e6);  // transformers' defaults
  EXPECT_EQ(gemma.rope.type, RopeType::kLinear);
  EXPECT_EQ(gemma.rope.factor, 8);
  EXPECT_EQ(gemma.local_rope->theta, 1e4);
  EXPECT_EQ(gemma.local_rope->type, RopeType::kDefault);
  EXPECT_TRUE(is_local(gemma, 0));
  EXPECT_FALSE(is_local(gemma, 5));
  EXPECT_EQ(attention_scale(gemma), 1.0f / 16);
  EXPECT_EQ(attention_scale(parse("gemma3_text", {{"query_pre_attn_scalar", 64}})), 0.125f);
  EXPECT_EQ(embedding_scale(gemma, DType::kF32), 8.0f);
  ModelConfig wide = gemma;
  wide.hidden_size = 2560;
  EXPECT_NEAR(embedding_scale(wide, DType::kF32), 50.5964432, 1e-5);
  EXPECT_EQ(embedding_scale(wide, DType::kBF16), 50.5f);
  EXPECT_EQ(embedding_scale(parse("llama"), DType::kBF16), 1.0f);
}

TEST(Config, Gemma3InTheNewStyle) {
  const Json ropes = {
      {"full_attention", {{"rope_type", "linear"}, {"rope_theta", 5e5}, {"factor", 2}}},
      {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 2e4}}}};
  const Json types = {"full_attention", "sliding_attention", "sliding_attention", "full_attention"};
  const ModelConfig gemma =
      parse("gemma3_text", {{"rope_parameters", ropes}, {"layer_types", types}});
  EXPECT_EQ(gemma.windows, (std::vector<std::int64_t>{0, 4096, 4096, 0}));
  EXPECT_EQ(gemma.rope.theta, 5e5);
  EXPECT_EQ(gemma.rope.factor, 2);
  EXPECT_EQ(gemma.local_rope->theta, 2e4);
  expect_error(
      [&] {
        parse("llama", {{"rope_parameters", ropes}});
      },
      {"rope_parameters.full_attention gives a kind of layer"});
  expect_error(
      [&] {
        parse("gemma3_text", {{"rope_parameters", {{"rope_type", "default"}}}});
      },
      {"rope_parameters.full_attention is missing"});
  expect_error(
      [&] {
        parse("gemma3_text", {{"rope_parameters", ropes}, {"rope_scaling", {{"type", "linear"}}}});
      },
      {"rope_scaling and rope_parameters are both given"});
}

TEST(Config, Gemma3VariantsThatAreRefused) {
  const auto refused = [](const Json& changes, std::initializer_list<std::string> parts) {
    expect_error([&] { parse("gemma3_text", changes); }, parts);
  };
  refused({{"attn_logit_softcapping", 50.0}}, {"attn_logit_softcapping is 50", "soft caps"});
  refused({{"final_logit_softcapping", 30.0}}, {"final_logit_softcapping is 30", "soft caps"});
  refused({{"use_bidirectional_attention", true}}, {"use_bidirectional_attention", "later tokens"});
  refused({{"hidden_activation", "silu"}}, {"hidden_activation \"silu\" is not supported"});
  refused({{"sliding_window", nullptr}}, {"sliding_window is null"});
  refused({{"query_pre_attn_scalar", 0}}, {"query_pre_attn_scalar is 0", "above 0"});
  refused({{"vision_config", {{"a", 1}}}}, {"vision_config", "only text"});
  expect_error([] { parse("gemma3"); },
               {"model_type \"gemma3\" is a model of images and text", "examples/gemma3_text.py"});
  // Elsewhere another scale of attention is still refused.
  expect_error([] { parse("llama", {{"query_pre_attn_scalar", 64}}); }, {"query_pre_attn_scalar"});
}

TEST(Config, HeadSizeOfItsOwn) {
  EXPECT_EQ(parse("llama", {{"head_dim", 48}}).head_size, 48);
  EXPECT_EQ(parse("llama", {{"head_dim", nullptr}}).head_size, 16);
  EXPECT_EQ(parse("qwen3").head_size, 128);  // transformers' default there
}

TEST(Config, KvHeadsDefaultToQueryHeadsInOldLlamas) {
  Json json = config_json("llama");
  json.erase("num_key_value_heads");
  EXPECT_EQ(parse_config(json, "c").kv_heads, 4);
  Json mistral = config_json("mistral");
  mistral.erase("num_key_value_heads");
  expect_error([&] { parse_config(mistral, "c"); }, {"c: num_key_value_heads is missing"});
  EXPECT_EQ(parse("mistral", {{"num_key_value_heads", nullptr}}).kv_heads, 4);
}

TEST(Config, WindowOfMistral) {
  EXPECT_EQ(parse("mistral", {{"sliding_window", 512}}).windows, std::vector<std::int64_t>(4, 512));
  EXPECT_EQ(parse("mistral", {{"sliding_window", nullptr}}).windows,
            std::vector<std::int64_t>(4, 0));
  EXPECT_EQ(parse("mistral").windows, std::vector<std::int64_t>(4, 4096));  // transformers' default
}

TEST(Config, WindowsOfQwen) {
  using Windows = std::vector<std::int64_t>;
  EXPECT_EQ(parse("qwen2", {{"sliding_window", 512}, {"max_window_layers", 0}}).windows,
            Windows(4, 0));
  const Json sliding = {
      {"use_sliding_window", true}, {"sliding_window", 512}, {"max_window_layers", 3}};
  EXPECT_EQ(parse("qwen2", sliding).windows, (Windows{0, 0, 0, 512}));
  EXPECT_EQ(parse("qwen2", {{"use_sliding_window", true}, {"sliding_window", 512}}).windows,
            Windows(4, 0));
  EXPECT_EQ(
      parse("qwen2",
            {{"use_sliding_window", true}, {"sliding_window", nullptr}, {"max_window_layers", 0}})
          .windows,
      Windows(4, 0));
  const Json types = {
      {"use_sliding_window", true},
      {"sliding_window", 512},
      {"max_window_layers", 0},
      {"layer_types",
       {"full_attention", "sliding_attention", "full_attention", "sliding_attention"}}};
  EXPECT_EQ(parse("qwen3", types).windows, (Windows{0, 512, 0, 512}));
}

TEST(Config, LayerTypesThatDisagree) {
  const Json sliding = Json::array(
      {"sliding_attention", "sliding_attention", "sliding_attention", "sliding_attention"});
  const Json full =
      Json::array({"full_attention", "full_attention", "full_attention", "full_attention"});
  expect_error(
      [&] {
        parse("qwen2", {{"layer_types", sliding}});
      },
      {"layer_types says that layer 0 slides", "use_sliding_window"});
  expect_error([&] { parse("llama", {{"layer_types", sliding}}); }, {"layer_types", "llama"});
  expect_error(
      [&] {
        parse("mistral", {{"layer_types", full}});
      },
      {"layer_types", "full_attention", "layer 0"});
  EXPECT_EQ(parse("llama", {{"layer_types", full}}).windows, std::vector<std::int64_t>(4, 0));
  EXPECT_EQ(parse("mistral", {{"layer_types", sliding}, {"sliding_window", 8}}).windows,
            std::vector<std::int64_t>(4, 8));
  expect_error(
      [&] {
        parse("qwen2", {{"layer_types", {"full_attention"}}});
      },
      {"layer_types has 1 entries", "num_hidden_layers is 4"});
  expect_error(
      [&] {
        parse("qwen2",
              {{"layer_types",
                {"full_attention", "full_attention", "full_attention", "linear_attention"}}});
      },
      {"layer_types", "linear_attention"});
  expect_error([&] { parse("qwen2", {{"layer_types", 3}}); }, {"layer_types must be a list"});
}

TEST(Config, BothStylesOfRope) {
  const Json scaling = {{"factor", 8.0},
                        {"low_freq_factor", 1.0},
                        {"high_freq_factor", 4.0},
                        {"original_max_position_embeddings", 1024}};
  Json old_style = scaling, new_style = scaling;
  old_style["rope_type"] = "llama3";
  new_style["rope_type"] = "llama3";
  new_style["rope_theta"] = 500000.0;
  for (const ModelConfig& c :
       {parse("llama", {{"rope_theta", 500000}, {"rope_scaling", old_style}}),
        parse("llama", {{"rope_parameters", new_style}})}) {
    EXPECT_EQ(c.rope.type, RopeType::kLlama3);
    EXPECT_EQ(c.rope.theta, 500000.0);
    EXPECT_EQ(c.rope.factor, 8.0);
    EXPECT_EQ(c.rope.original_positions, 1024);
  }
  EXPECT_EQ(parse("llama").rope.theta, 10000.0);
  EXPECT_EQ(parse("llama", {{"rope_scaling", {{"type", "linear"}, {"factor", 2}}}}).rope.type,
            RopeType::kLinear);
  EXPECT_EQ(parse("llama", {{"rope_scaling", nullptr}, {"rope_parameters", {{"rope_theta", 7.0}}}})
                .rope.theta,
            7.0);
  EXPECT_EQ(
      parse("llama", {{"rope_scaling", {{"type", "yarn"}, {"factor", 2}}}}).rope.original_positions,
      4096);
}

TEST(Config, RopeMistakes) {
  const auto rope = [](const Json& scaling) {
    return [=] { parse("llama", {{"rope_scaling", scaling}}); };
  };
  for (const char* type : {"dynamic", "longrope", "su", "mrope", "proportional"})
    expect_error(rope({{"rope_type", type}, {"factor", 2.0}}),
                 {"rope_scaling.rope_type", type, "default, linear, llama3 and yarn"});
  expect_error(rope({{"type", "dynamic"}}), {"config.json: rope_scaling.type is \"dynamic\""});
  expect_error(rope({{"type", "linear"}}), {"rope_scaling.factor is missing"});
  expect_error(rope({{"type", "yarn"}}), {"rope_scaling.factor is missing"});
  expect_error(rope({{"type", "linear"}, {"factor", "two"}}),
               {"rope_scaling.factor must be a number"});
  expect_error(rope({{"type", "linear"}, {"factor", -1}}),
               {"rope_scaling.factor is -1", "above 0"});
  expect_error(
      rope({{"type", "llama3"}, {"factor", 2}, {"low_freq_factor", 4}, {"high_freq_factor", 1}}),
      {"high_freq_factor is 1", "low_freq_factor"});
  expect_error(rope({{"type", "yarn"}, {"factor", 2}, {"beta_fast", 1}, {"beta_slow", 2}}),
               {"beta_fast is 1"});
  expect_error(rope({{"type", "default"}, {"partial_rotary_factor", 0.5}}),
               {"rope_scaling.partial_rotary_factor"});
  expect_error(rope({{"type", "default"}, {"mrope_section", {16, 24, 24}}}),
               {"rope_scaling.mrope_section"});
  expect_error(rope({{"full_attention", {{"rope_type", "default"}}}}),
               {"rope_scaling.full_attention"});
  expect_error(rope("yarn"), {"rope_scaling must hold a JSON object"});
  expect_error([] { parse("llama", {{"rope_theta", 0}}); }, {"rope_theta is 0"});
  expect_error(
      [] {
        parse("llama", {{"rope_scaling", {{"type", "linear"}, {"factor", 2}}},
                        {"rope_parameters", {{"rope_theta", 5.0}}}});
      },
      {"rope_scaling and rope_parameters"});
}

TEST(Config, MissingFields) {
  for (const char* field :
       {"model_type", "hidden_size", "num_hidden_layers", "num_attention_heads",
        "intermediate_size", "vocab_size", "rms_norm_eps", "max_position_embeddings"}) {
    Json json = config_json("llama");
    json.erase(field);
    expect_error([&] { parse_config(json, "dir/config.json"); },
                 {std::string("dir/config.json: ") + field + " is missing"});
  }
}

TEST(Config, WrongTypes) {
  for (const char* field :
       {"hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
        "head_dim", "intermediate_size", "vocab_size", "max_position_embeddings"}) {
    for (const Json& value : {Json("64"), Json(64.5), Json(true), Json::array({64})})
      expect_error(
          [&] {
            parse("llama", {{field, value}});
          },
          {std::string(field) + " must be a whole number"});
    expect_error(
        [&] {
          parse("llama", {{field, 0}});
        },
        {std::string(field) + " is 0", "at least 1"});
    expect_error(
        [&] {
          parse("llama", {{field, -4}});
        },
        {std::string(field) + " is -4", "at least 1"});
    expect_error(
        [&] {
          parse("llama", {{field, 0xffffffffffffffffu}});
        },
        {std::string(field), "at most"});
  }
  expect_error(
      [] {
        parse("llama", {{"tie_word_embeddings", 1}});
      },
      {"tie_word_embeddings must be true or false, not 1"});
  expect_error(
      [] {
        parse("llama", {{"rms_norm_eps", "small"}});
      },
      {"rms_norm_eps must be a number"});
  expect_error([] { parse("llama", {{"rms_norm_eps", 0.0}}); }, {"rms_norm_eps is 0"});
  expect_error([] { parse("llama", {{"model_type", 7}}); }, {"model_type must be a text"});
  expect_error(
      [] {
        parse("llama", {{"architectures", "LlamaForCausalLM"}});
      },
      {"architectures must be a list"});
  expect_error([] { parse_config(Json::array(), "c.json"); },
               {"c.json: the file must hold a JSON object"});
}

TEST(Config, InconsistentSizes) {
  expect_error(
      [] {
        parse("llama", {{"num_key_value_heads", 3}});
      },
      {"num_attention_heads is 4", "multiple of num_key_value_heads, 3"});
  expect_error(
      [] {
        parse("llama", {{"hidden_size", 66}});
      },
      {"hidden_size is 66", "multiple of num_attention_heads"});
  expect_error([] { parse("llama", {{"head_dim", 15}}); }, {"head_dim", "15", "even"});
  expect_error(
      [] {
        parse("llama", {{"num_attention_heads", 1024}, {"head_dim", 2048}});
      },
      {"num_attention_heads times the head size"});
}

TEST(Config, OtherKindsOfModel) {
  expect_error([] { parse("gemma2"); },
               {"config.json: model_type \"gemma2\" is not supported", "qwen3, llama, mistral"});
  expect_error([] { parse("qwen2_moe"); }, {"qwen2_moe"});
  expect_error(
      [] {
        parse("llama", {{"architectures", {"LlamaForSequenceClassification"}}});
      },
      {"architectures", "LlamaForSequenceClassification", "ForCausalLM"});
  expect_error([] { parse("llama", {{"architectures", {"LlamaModel"}}}); }, {"architectures"});
  expect_error(
      [] {
        parse("llama", {{"architectures", {"Qwen2ForCausalLM"}}});
      },
      {"architectures", "type llama"});
  EXPECT_NO_THROW(parse("qwen2", {{"architectures", {"Qwen2ForCausalLM"}}}));
  expect_error([] { parse("llama", {{"hidden_act", "gelu"}}); }, {"hidden_act \"gelu\"", "silu"});
  expect_error(
      [] {
        parse("llama", {{"dtype", "float8_e4m3fn"}});
      },
      {"dtype \"float8_e4m3fn\"", "bfloat16"});
}

TEST(Config, FieldsThatWouldChangeTheResult) {
  const Json refused = {
      {"attention_dropout", 0.1},      {"quantization_config", {{"bits", 4}}},
      {"final_logit_softcapping", 30}, {"attn_logit_softcapping", 50},
      {"logit_scale", 0.0625},         {"logits_scaling", 8.0},
      {"embedding_multiplier", 12.0},  {"num_experts", 8},
      {"num_local_experts", 8},        {"clip_qkv", 8.0},
      {"partial_rotary_factor", 0.5},  {"per_layer_config", {{"0", {{"hidden_size", 32}}}}},
      {"is_encoder_decoder", true},    {"use_qk_norm", true},
      {"attention_sinks", true},       {"vision_config", {{"hidden_size", 32}}}};
  for (const auto& [field, value] : refused.items())
    expect_error(
        [&, f = field, v = value] {
          parse("llama", {{f, v}});
        },
        {"config.json: " + field + " is ", "but"});
  // The same fields at their defaults are accepted.
  const Json harmless = {{"attention_dropout", 0.0},
                         {"quantization_config", nullptr},
                         {"final_logit_softcapping", nullptr},
                         {"logit_scale", 1.0},
                         {"embedding_multiplier", 1},
                         {"num_experts", 0},
                         {"clip_qkv", nullptr},
                         {"partial_rotary_factor", 1.0},
                         {"per_layer_config", Json::object()},
                         {"is_encoder_decoder", false}};
  EXPECT_NO_THROW(parse("llama", harmless));
}

TEST(Config, UnknownFieldsAreMentionedOnce) {
  const Json json = config_json("llama", {{"unheard_of", 3},
                                          {"unset", nullptr},
                                          {"off", false},
                                          {"sliding_window", 4096},
                                          {"use_cache", true}});
  ::testing::internal::CaptureStderr();
  parse_config(json, "once.json");
  const std::string first = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(first.find("once.json"), std::string::npos) << first;
  EXPECT_NE(first.find("sliding_window, unheard_of"), std::string::npos) << first;
  EXPECT_EQ(first.find("unset"), std::string::npos) << first;
  EXPECT_EQ(first.find("off"), std::string::npos) << first;
  EXPECT_EQ(first.find("use_cache"), std::string::npos) << first;
  ::testing::internal::CaptureStderr();
  parse_config(json, "once.json");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

TEST(Config, UnknownRopeFieldsAreMentioned) {
  ::testing::internal::CaptureStderr();
  parse_config(config_json("llama", {{"rope_scaling", {{"type", "default"}, {"wobble", 2}}}}),
               "wobble.json");
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("rope_scaling.wobble"),
            std::string::npos);
}

TEST(Config, FilesThatCannotBeRead) {
  const testing::TemporaryDirectory directory;
  expect_error([&] { read_config(directory.path()); }, {"config.json", "no such file"});
  testing::write_text(directory.path() / "config.json", "{\"model_type\": ");
  expect_error([&] { read_config(directory.path()); }, {"config.json", "not valid JSON"});
  testing::write_text(directory.path() / "config.json", config_json("llama").dump());
  EXPECT_EQ(read_config(directory.path()).hidden_size, 64);
}

TEST(Config, CountsParameters) {
  const ModelConfig plain = parse("mistral");
  const std::int64_t layer = 64 * 64 * 2 + 64 * 32 * 2 + 3 * 64 * 128;
  EXPECT_EQ(matrix_parameter_count(plain), 4 * layer + 100 * 64);
  EXPECT_EQ(parameter_count(plain), 4 * (layer + 128) + 64 + 2 * 100 * 64);
  const ModelConfig tied = parse("qwen2", {{"tie_word_embeddings", true}});
  EXPECT_EQ(matrix_parameter_count(tied), 4 * layer + 100 * 64);
  EXPECT_EQ(parameter_count(tied), 4 * (layer + 128 + 64 + 32 + 32) + 64 + 100 * 64);
}

}  // namespace
}  // namespace longstride
