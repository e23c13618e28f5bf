// The user's rope settings in place of a model's own: what they make of the config and its file.
#include "model/rope_choice.h"

#include <gtest/gtest.h>

#include "model/presets.h"
#include "model/rope_frequencies.h"
#include "tests/model/fixtures.h"

namespace longstride {
namespace {

using testing::config_json;
using testing::expect_error;

ModelConfig parsed(const Json& changes = Json::object()) {
  return parse_config(config_json("llama", changes), "config.json");
}

ModelConfig with(const RopeChoice& choice, const Json& changes = Json::object(),
                 std::int64_t context = 4096) {
  ModelConfig config = parsed(changes);
  apply_rope(choice, rope_keys(), context, "config.json", config);
  return config;
}

std::int64_t made_for(const RopeChoice& choice, std::int64_t context,
                      const Json& changes = Json::object()) {
  ModelConfig config = parsed(changes);
  return apply_rope(choice, rope_keys(), context, "config.json", config);
}

// What is written reads back as what is trained, and nothing but the rope's fields changed.
void expect_written(const ModelConfig& config, const Json& source) {
  const ModelConfig read = parse_config(config.raw, "written");
  EXPECT_EQ(read.max_positions, config.max_positions);
  const RopeFrequencies a = rope_frequencies(config), b = rope_frequencies(read);
  EXPECT_EQ(a.frequencies, b.frequencies);
  EXPECT_EQ(a.attention_factor, b.attention_factor);
  Json then = source, now = config.raw;
  for (const char* key : {"rope_theta", "rope_scaling", "rope_parameters",
                          "max_position_embeddings", "original_max_position_embeddings"}) {
    then.erase(key);
    now.erase(key);
  }
  EXPECT_EQ(now, then);
}

const Json kYarn = {{"rope_scaling",
                     {{"type", "yarn"},
                      {"factor", 2.0},
                      {"beta_fast", 16.0},
                      {"original_max_position_embeddings", 2048}}}};

TEST(RopeChoice, WithoutOneNothingChanges) {
  for (const Json& changes : {Json::object(), kYarn}) {
    const ModelConfig config = with({}, changes, 1 << 20);
    EXPECT_EQ(config.raw, config_json("llama", changes));
    EXPECT_EQ(config.max_positions, 4096);
  }
  EXPECT_EQ(made_for({}, 1 << 20), 4096);
}

TEST(RopeChoice, EveryTypeOnAPlainModel) {
  const ModelConfig linear = with({.type = "linear", .factor = 4});
  EXPECT_EQ(linear.rope.type, RopeType::kLinear);
  EXPECT_EQ(linear.raw["rope_scaling"], (Json{{"rope_type", "linear"}, {"factor", 4.0}}));

  const ModelConfig llama3 = with({.type = "llama3", .factor = 8, .original_positions = 1024});
  EXPECT_EQ(llama3.raw["rope_scaling"], (Json{{"rope_type", "llama3"},
                                              {"factor", 8.0},
                                              {"low_freq_factor", 1.0},
                                              {"high_freq_factor", 4.0},
                                              {"original_max_position_embeddings", 1024}}));
  EXPECT_EQ(llama3.rope.original_positions, 1024);

  const ModelConfig yarn = with({.type = "yarn", .theta = 5e5, .factor = 4});
  EXPECT_EQ(
      yarn.raw["rope_scaling"],
      (Json{{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 4096}}));
  EXPECT_EQ(yarn.raw["rope_theta"], 5e5);
  EXPECT_EQ(yarn.rope.theta, 5e5);
  EXPECT_EQ(yarn.rope.beta_fast, 32.0);
  for (const ModelConfig& config : {linear, llama3, yarn}) {
    EXPECT_FALSE(config.raw.contains("rope_parameters"));
    expect_written(config, config_json("llama"));
  }
}

TEST(RopeChoice, DefaultRemovesScaling) {
  const ModelConfig old = with({.type = "default"}, kYarn);
  EXPECT_EQ(old.rope.type, RopeType::kDefault);
  EXPECT_EQ(old.raw["rope_scaling"], nullptr);
  expect_written(old, config_json("llama", kYarn));
  const ModelConfig newer =
      with({.type = "default"},
           {{"rope_parameters", {{"rope_type", "linear"}, {"factor", 2.0}, {"rope_theta", 7e4}}}});
  EXPECT_EQ(newer.raw["rope_parameters"], (Json{{"rope_type", "default"}, {"rope_theta", 7e4}}));
  EXPECT_EQ(newer.rope.type, RopeType::kDefault);
  EXPECT_EQ(newer.rope.theta, 7e4);
  EXPECT_FALSE(newer.raw.contains("rope_scaling"));
}

TEST(RopeChoice, WhatIsNotGivenStaysTheModels) {
  const ModelConfig theta = with({.theta = 1e6}, kYarn);
  EXPECT_EQ(theta.rope.theta, 1e6);
  EXPECT_EQ(theta.raw["rope_scaling"], kYarn["rope_scaling"]) << "not even the spelling";
  const ModelConfig factor = with({.factor = 8}, kYarn);
  EXPECT_EQ(factor.rope.type, RopeType::kYarn);
  EXPECT_EQ(factor.rope.factor, 8.0);
  EXPECT_EQ(factor.rope.beta_fast, 16.0) << "a fine point of the same type";
  EXPECT_EQ(factor.rope.original_positions, 2048);
  EXPECT_EQ(factor.rope.theta, 10000.0);
  const ModelConfig other = with({.type = "llama3"}, kYarn);
  EXPECT_EQ(other.rope.factor, 2.0);
  EXPECT_EQ(other.rope.original_positions, 2048);
  EXPECT_EQ(other.rope.high_freq_factor, 4.0);
  EXPECT_FALSE(other.raw["rope_scaling"].contains("beta_fast"));
  for (const ModelConfig& config : {theta, factor, other})
    expect_written(config, config_json("llama", kYarn));
}

// transformers 5 reads rope_parameters, older ones the fields before it.
TEST(RopeChoice, TheNewerFieldIsWrittenWhereTheSourceHasIt) {
  const Json source = {{"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 5e5}}}};
  const ModelConfig config = with({.type = "yarn", .factor = 4}, source);
  const Json written = {{"rope_type", "yarn"},
                        {"rope_theta", 5e5},
                        {"factor", 4.0},
                        {"original_max_position_embeddings", 4096}};
  EXPECT_EQ(config.raw["rope_parameters"], written);
  EXPECT_EQ(config.raw["rope_scaling"], written);
  EXPECT_EQ(config.raw["rope_theta"], 5e5);
  expect_written(config, config_json("llama", source));
  EXPECT_EQ(with({.theta = 9e5}, source).raw["rope_parameters"]["rope_theta"], 9e5);
}

TEST(RopeChoice, OriginalPositionsOutside) {
  const Json source = {{"original_max_position_embeddings", 1024}};
  EXPECT_EQ(with({.type = "yarn", .factor = 4}, source).rope.original_positions, 1024);
  const ModelConfig given = with({.type = "yarn", .factor = 4, .original_positions = 512}, source);
  EXPECT_EQ(given.rope.original_positions, 512);
  EXPECT_EQ(given.raw["original_max_position_embeddings"], 512) << "the one outside wins";
}

// What follows from max_position_embeddings must not change with it.
TEST(RopeChoice, TheSavedPositionsCoverTheContext) {
  const Json implicit = {
      {"rope_scaling",
       {{"type", "yarn"}, {"factor", nullptr}, {"original_max_position_embeddings", 1024}}}};
  const ModelConfig config = with({.theta = 1e6}, implicit, 32768);
  EXPECT_EQ(config.raw["max_position_embeddings"], 32768);
  EXPECT_EQ(config.rope.factor, 4.0) << "4096 / 1024, as before";
  expect_written(config, config_json("llama", implicit));

  EXPECT_EQ(with({.type = "yarn", .factor = 4}, Json::object(), 8192).max_positions, 16384)
      << "factor times original";
  EXPECT_EQ(with({.type = "yarn", .factor = 1}, Json::object(), 8192).max_positions, 8192);
  EXPECT_EQ(with({.theta = 1e6}, Json::object(), 256).max_positions, 4096)
      << "never less than the source's";
  EXPECT_EQ(with({.factor = 1e300}, kYarn).max_positions, std::int64_t{1} << 62);
}

TEST(RopeChoice, HowFarTheSettingsReach) {
  EXPECT_EQ(made_for({.type = "yarn", .factor = 2}, 32768), 8192);
  EXPECT_EQ(made_for({.type = "linear", .factor = 8}, 32768), 32768);
  EXPECT_EQ(made_for({.factor = 8}, 1, {{"rope_scaling", {{"type", "linear"}, {"factor", 2}}}}),
            16384);
  EXPECT_EQ(made_for({.theta = 1e6}, 32768), 32768) << "the user's to say";
  EXPECT_EQ(made_for({.type = "default"}, 32768, kYarn), 2048);
}

TEST(RopeChoice, Twice) {
  for (const RopeChoice& choice :
       {RopeChoice{.type = "yarn", .factor = 4}, RopeChoice{.type = "linear", .factor = 4},
        RopeChoice{.type = "default"}, RopeChoice{.theta = 1e6}})
    for (const Json& changes : {Json::object(), kYarn}) {
      ModelConfig config = with(choice, changes, 8192);
      const Json once = config.raw;
      apply_rope(choice, rope_keys(), 8192, "config.json", config);
      EXPECT_EQ(config.raw, once) << choice.type;
    }
}

TEST(RopeChoice, OfAPreset) {
  ModelConfig config = find_preset("qwen3-8b");
  EXPECT_EQ(apply_rope({.type = "yarn", .factor = 4, .original_positions = 32768}, rope_keys(),
                       131072, "preset", config),
            131072);
  EXPECT_EQ(config.max_positions, 131072);
  EXPECT_EQ(config.rope.theta, 1000000.0);
}

TEST(RopeChoice, Refusals) {
  const auto refused = [](const RopeChoice& choice, std::initializer_list<std::string> parts,
                          const Json& changes = Json::object()) {
    expect_error([&] { with(choice, changes, 16384); }, parts);
  };
  refused({.type = "yarn"}, {"model.rope_type is yarn", "model.rope_factor", "set", "to 4"});
  refused({.type = "linear"}, {"model.rope_type is linear", "model.rope_factor"});
  refused({.type = "llama3", .original_positions = 64}, {"model.rope_factor"});
  refused({.type = "dynamic", .factor = 2}, {"model.rope_type is \"dynamic\"", "llama3 and yarn"});
  refused({.factor = 4}, {"model.rope_factor is 4", "set model.rope_type to yarn"});
  refused({.type = "default", .factor = 4},
          {"model.rope_factor is 4", "model.rope_type is default"}, kYarn);
  refused({.original_positions = 64}, {"model.rope_original_positions is 64", "model.rope_type"});
  refused({.type = "linear", .factor = 4, .original_positions = 64},
          {"model.rope_original_positions is 64", "model.rope_type is linear"});
  refused({.type = "yarn", .factor = 0.5}, {"model.rope_factor is 0.5", "at least 1"});
  refused({.theta = 0}, {"model.rope_theta is 0", "over 1"});
  refused({.theta = -5}, {"model.rope_theta is -5"});
  refused({.type = "yarn", .factor = 4, .original_positions = 0},
          {"model.rope_original_positions is 0", "at least 1"});
}

// Layers with a window keep theirs.
TEST(RopeChoice, OfLayersWithoutAWindow) {
  const Json local = {{"rope_type", "default"}, {"rope_theta", 2e4}};
  const Json newer = {{"rope_parameters",
                       {{"full_attention", {{"rope_type", "default"}, {"rope_theta", 5e5}}},
                        {"sliding_attention", local}}}};
  const Json older = {{"rope_theta", 5e5}, {"rope_local_base_freq", 2e4}};
  for (const Json& changes : {newer, older}) {
    const Json source = config_json("gemma3_text", changes);
    ModelConfig config = parse_config(source, "config.json");
    apply_rope({.type = "linear", .factor = 4}, rope_keys(), 16384, "config.json", config);
    EXPECT_EQ(config.rope.theta, 5e5);
    EXPECT_EQ(config.rope.factor, 4);
    EXPECT_EQ(config.local_rope->theta, 2e4);
    EXPECT_EQ(config.max_positions, 16384);
    expect_written(config, source);
    EXPECT_EQ(parse_config(config.raw, "written").local_rope->theta, 2e4);
    if (config.raw.contains("rope_parameters")) {
      EXPECT_EQ(config.raw["rope_parameters"]["sliding_attention"], local);
      EXPECT_FALSE(config.raw.contains("rope_scaling") || config.raw.contains("rope_theta"));
    }
  }
}

TEST(RopeChoice, TypesThatAFamilyDoesNotHave) {
  ModelConfig phi = find_preset("tiny-phi3");
  expect_error(
      [&] { apply_rope({.type = "yarn", .factor = 4}, rope_keys(), 4096, "config.json", phi); },
      {"model.rope_type is yarn", "phi3", "model.rope_theta"});
  apply_rope({.theta = 5e6}, rope_keys(), 4096, "config.json", phi);
  EXPECT_EQ(phi.rope.theta, 5e6);
}

}  // namespace
}  // namespace longstride
