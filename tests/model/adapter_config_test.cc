#include "model/adapter_config.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/log.h"
#include "model/adapter_modules.h"
#include "tests/model/fixtures.h"

namespace longstride {
namespace {

using testing::config_json;
using testing::expect_error;

using Names = std::vector<std::string>;
using Layers = std::vector<std::int64_t>;

// Four layers.
ModelConfig small_model(const Json& changes = Json::object()) {
  return parse_config(config_json("qwen3", changes), "config.json");
}

Json adapter_json(const Json& changes = Json::object()) {
  Json json = {{"peft_type", "LORA"},
               {"task_type", "CAUSAL_LM"},
               {"r", 8},
               {"lora_alpha", 16},
               {"target_modules", {"v_proj", "q_proj"}}};
  json.update(changes);
  return json;
}

AdapterConfig parsed(const Json& changes) {
  return parse_adapter_config(adapter_json(changes), "adapter_config.json", small_model());
}

void expect_refused(const Json& changes, std::initializer_list<std::string> parts) {
  expect_error([&] { parsed(changes); }, parts);
}

TEST(AdapterConfig, ReadsWhatMatters) {
  const AdapterConfig c = parsed({{"lora_dropout", 0.1},
                                  {"base_model_name_or_path", "some/model"},
                                  {"modules_to_save", {"embed_tokens", "norm"}}});
  EXPECT_EQ(c.rank, 8);
  EXPECT_EQ(c.alpha, 16);
  EXPECT_EQ(c.dropout, 0.1);
  EXPECT_FALSE(c.rslora);
  EXPECT_EQ(c.targets, (Names{"q_proj", "v_proj"}));
  EXPECT_TRUE(c.layers.empty());
  EXPECT_EQ(c.also_train, (Names{"embed_tokens", "norm"}));
  EXPECT_EQ(c.base_model, "some/model");
  EXPECT_EQ(c.scale(), 2.0);
  EXPECT_EQ(parsed({{"use_rslora", true}}).scale(), 16 / std::sqrt(8.0));
}

TEST(AdapterConfig, TargetsByNamePatternAndLayer) {
  EXPECT_EQ(parsed({{"target_modules", "all-linear"}}).targets.size(), 7u);
  EXPECT_EQ(
      parsed({{"target_modules", "All-Linear"}, {"exclude_modules", {"mlp.up_proj"}}}).targets,
      (Names{"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "down_proj"}));
  EXPECT_EQ(parsed({{"target_modules", R"(.*\.(k|down)_proj)"}}).targets,
            (Names{"k_proj", "down_proj"}));
  EXPECT_EQ(parsed({{"target_modules", R"(model\.layers\.[13]\.self_attn\.[qk]_proj)"}}).layers,
            (Layers{1, 3}));
  EXPECT_EQ(
      parsed({{"target_modules", R"(.*(?:q|k)_proj)"}, {"exclude_modules", ".*q_proj"}}).targets,
      (Names{"k_proj"}));
  EXPECT_EQ(parsed({{"layers_to_transform", {2, 0}}, {"layers_pattern", "layers"}}).layers,
            (Layers{0, 2}));
  EXPECT_EQ(parsed({{"layers_to_transform", 3}}).layers, (Layers{3}));
  // Whole names, as PEFT writes them for all-linear, whatever layers_to_transform says.
  EXPECT_EQ(parsed({{"target_modules", {"model.layers.2.mlp.up_proj"}}, {"layers_to_transform", 1}})
                .layers,
            (Layers{2}));
  // What is trained whole has no adapter.
  EXPECT_EQ(parsed({{"target_modules", {"q_proj", "up_proj", "lm_head"}},
                    {"modules_to_save", {"mlp", "lm_head"}}})
                .targets,
            (Names{"q_proj"}));
}

TEST(AdapterConfig, RefusesTargetsThatItCannotHave) {
  expect_refused({{"target_modules", {"c_attn"}}}, {"matches no projection", "q_proj"});
  expect_refused({{"target_modules", "q_proj"}}, {"matches no projection"});
  expect_refused({{"target_modules", {"q_proj", "lm_head"}}}, {"lm_head", "modules_to_save"});
  expect_refused({{"target_modules", {"layers.1.self_attn.q_proj", "layers.2.mlp.up_proj"}}},
                 {"leaves out model.layers.1.mlp.up_proj", "differ by layer"});
  expect_refused({{"target_modules", R"((?<=layers\.)q_proj)"}}, {"pattern of target_modules"});
  expect_refused({{"target_modules", "[[:alpha:]]*"}}, {"pattern of target_modules"});
  expect_refused({{"target_modules", "(q_proj"}}, {"pattern of target_modules"});
  expect_refused({{"target_modules", R"(.*q_proj\Z)"}}, {"pattern of target_modules"});
  expect_refused({{"exclude_modules", "(?i)q"}}, {"pattern of exclude_modules"});
  expect_refused({{"target_modules", 7}}, {"target_modules", "not 7"});
  expect_refused({{"target_modules", nullptr}}, {"target_modules is missing"});
  expect_refused({{"layers_to_transform", {4}}}, {"layer 4", "4 layers", "another model"});
  expect_refused({{"layers_to_transform", {-1}}}, {"layers_to_transform", "-1"});
  expect_refused({{"layers_to_transform", {0}}, {"layers_pattern", {"h"}}}, {"layers_pattern"});
  expect_refused({{"layers_to_transform", {0}}, {"target_modules", "all-linear"}},
                 {"layers_to_transform"});
}

TEST(AdapterConfig, RefusesOptionsThatWouldChangeTheResult) {
  const std::pair<const char*, Json> options[] = {
      {"use_dora", true},
      {"lora_bias", true},
      {"bias", "all"},
      {"rank_pattern", {{"q_proj", 4}}},
      {"alpha_pattern", {{"q_proj", 4}}},
      {"target_parameters", {"mlp.experts"}},
      {"trainable_token_indices", {1, 2}},
      {"alora_invocation_tokens", {5}},
      {"use_qalora", true},
      {"arrow_config", {{"top_k", 3}}},
      {"use_bdlora", {{"nblocks", 2}}},
      {"velora_config", {{"num_groups", 2}}},
      {"kasa_config", {{"beta", 2}}},
      {"monteclora_config", {{"num_samples", 2}}},
      {"megatron_config", {{"a", 1}}},
      {"layer_replication", {{0, 2}, {1, 3}}},
      {"init_lora_weights", "pissa_niter_4"},
      {"init_lora_weights", "olora"},
      {"init_lora_weights", "loftq"},
      {"init_lora_weights", "corda"},
      {"init_lora_weights", "lora_ga"},
      {"init_lora_weights", "mica"},
      {"peft_type", "LOHA"},
      {"task_type", "SEQ_CLS"},
      {"r", 0},
      {"r", "8"},
      {"lora_dropout", 1.0},
      {"lora_alpha", "16"},
      {"modules_to_save", "norm"},
      {"modules_to_save", {"nor*"}},
  };
  for (const auto& [field, value] : options) {
    SCOPED_TRACE(field);
    expect_refused({{field, value}}, {std::string("adapter_config.json: ") + field});
  }
  Json json = adapter_json();
  json.erase("peft_type");
  expect_error([&] { parse_adapter_config(json, "here", small_model()); },
               {"here: peft_type is missing"});
}

TEST(AdapterConfig, AcceptsOptionsThatDoNotMatter) {
  for (const Json& init : {Json(true), Json(false), Json("gaussian"), Json("eva")})
    EXPECT_EQ(parsed({{"init_lora_weights", init}}).rank, 8);
  EXPECT_EQ(parsed({{"use_dora", false},
                    {"rank_pattern", Json::object()},
                    {"layer_replication", nullptr},
                    {"loftq_config", Json::object()},
                    {"fan_in_fan_out", true},
                    {"megatron_core", "megatron.core"},
                    {"qalora_group_size", 16},
                    {"peft_version", "0.21.2"}})
                .rank,
            8);
}

TEST(AdapterConfig, WhatIsWrittenIsReadBack) {
  AdapterConfig c{.rank = 4,
                  .alpha = 8.5,
                  .rslora = true,
                  .dropout = 0.25,
                  .targets = {"k_proj", "down_proj"},
                  .layers = {1, 2},
                  .also_train = {"embed_tokens"},
                  .tie_weights = true,
                  .base_model = "somewhere"};
  EXPECT_EQ(parse_adapter_config(adapter_config_json(c), "x", small_model()), c);
  c = {.alpha = 32, .targets = {"o_proj"}};
  const Json json = adapter_config_json(c);
  EXPECT_EQ(parse_adapter_config(json, "x", small_model()), c);
  EXPECT_EQ(json.at("lora_alpha").dump(), "32");
  EXPECT_FALSE(json.contains("ensure_weight_tying"));  // old versions of PEFT refuse it
  EXPECT_TRUE(json.at("modules_to_save").is_null());
}

Names names_of(const AdapterConfig& config, const ModelConfig& model) {
  Names names;
  for (const AdapterTensor& t : adapter_tensors(config, model, "x")) names.push_back(t.name);
  return names;
}

TEST(AdapterTensors, AreNamedAsPeftNamesThem) {
  const ModelConfig model = small_model({{"tie_word_embeddings", true}});
  AdapterConfig c{.rank = 3, .targets = {"q_proj", "up_proj"}, .layers = {1}};
  EXPECT_EQ(names_of(c, model),
            (Names{"base_model.model.model.layers.1.self_attn.q_proj.lora_A.weight",
                   "base_model.model.model.layers.1.self_attn.q_proj.lora_B.weight",
                   "base_model.model.model.layers.1.mlp.up_proj.lora_A.weight",
                   "base_model.model.model.layers.1.mlp.up_proj.lora_B.weight"}));
  const std::vector<AdapterTensor> tensors = adapter_tensors(c, model, "x");
  EXPECT_EQ(tensors[0].shape, (Shape{3, model.hidden_size}));
  EXPECT_EQ(tensors[1].shape, (Shape{model.query_heads * model.head_size, 3}));
  EXPECT_EQ(tensors[3].shape, (Shape{model.ffn_size, 3}));
  EXPECT_EQ(tensors[3].parameter, adapter_parameter_name(1, "up_proj", 'B'));

  // "norm" is the end of every norm's name; PEFT asks for no dot before it.
  c.targets = {"o_proj"};
  c.also_train = {"norm"};
  EXPECT_EQ(names_of(c, model).size(), 2u + 4 * 4 + 1);
  c.also_train = {"model.norm", "layers.2.mlp"};
  EXPECT_EQ(names_of(c, model).size(), 2u + 1 + 3);

  // A tied head is a tensor of its own where it is trained.
  const Names without = names_of({.targets = {"o_proj"}}, model);
  const auto count = [&](const AdapterConfig& config) {
    return names_of(config, model).size() - without.size();
  };
  EXPECT_EQ(count({.targets = {"o_proj"}, .also_train = {"embed_tokens"}}), 1u);
  EXPECT_EQ(count({.targets = {"o_proj"}, .also_train = {"lm_head"}}), 1u);
  EXPECT_EQ(count({.targets = {"o_proj"}, .also_train = {"lm_head"}, .tie_weights = true}), 2u);
  EXPECT_EQ(names_of({.targets = {"o_proj"}, .also_train = {"lm_head"}}, model).back(),
            "base_model.model.lm_head.weight");
}

TEST(AdapterTensors, RefuseModulesThatTheModelLacksOrThatHaveAnAdapter) {
  const ModelConfig model = small_model();
  expect_error([&] { names_of({.targets = {"o_proj"}, .also_train = {"wte"}}, model); },
               {"no module \"wte\"", "embed_tokens"});
  expect_error([&] { names_of({.targets = {"o_proj"}, .also_train = {"proj"}}, model); },
               {"self_attn.o_proj", "have an adapter too"});
}

}  // namespace
}  // namespace longstride
