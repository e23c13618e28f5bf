#include "model/rope_frequencies.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/model/fixtures.h"

namespace longstride {
namespace {

constexpr int kPairs[] = {0, 1, 13, 20, 26, 29, 33, 37, 42, 50, 63};

struct Case {
  const char* name;
  Json rope;
  double attention_factor;
  std::vector<double> frequencies;  // of kPairs
};

// Made with transformers 5.22, for each case's `rope` as keyword arguments:
//   c = LlamaConfig(hidden_size=256, num_attention_heads=2, num_key_value_heads=1, head_dim=128,
//                   max_position_embeddings=131072, **rope)
//   r = LlamaRotaryEmbedding(c); print(r.attention_scaling, r.inv_freq[kPairs])
// transformers computes in single precision, hence the tolerance below.
std::vector<Case> cases() {
  return {
      {"default",
       {{"rope_theta", 1000000.0}},
       1.0,
       {1.0, 0.805842221, 0.0604296438, 0.0133352149, 0.00365174143, 0.00191095285, 0.000805842225,
        0.000339820836, 0.000115478193, 2.05352499e-05, 1.24093776e-06}},
      {"linear",
       {{"rope_theta", 10000.0}, {"rope_scaling", {{"type", "linear"}, {"factor", 4.0}}}},
       1.0,
       {0.25, 0.216491088, 0.0384981632, 0.0140585322, 0.00592843397, 0.00384981628, 0.00216491078,
        0.00121741882, 0.000592843455, 0.000187473546, 2.88695483e-05}},
      {"llama3",
       {{"rope_theta", 500000.0},
        {"rope_scaling",
         {{"rope_type", "llama3"},
          {"factor", 8.0},
          {"low_freq_factor", 1.0},
          {"high_freq_factor", 4.0},
          {"original_max_position_embeddings", 8192}}}},
       1.0,
       {1.0, 0.814617217, 0.0695659518, 0.0165604409, 0.00483942125, 0.00216657063, 0.00031269365,
        6.34151438e-05, 2.2748929e-05, 4.41153452e-06, 3.06892588e-07}},
      {"yarn",
       {{"rope_theta", 1000000.0},
        {"rope_scaling",
         {{"type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 32768}}}},
       1.138629436111989,
       {1.0, 0.805842221, 0.0604296438, 0.0133352149, 0.00316842273, 0.00140511245, 0.000450323569,
        0.00012993149, 2.88695483e-05, 5.13381246e-06, 3.10234441e-07}},
      {"yarn with betas, mscale, not truncated",
       {{"rope_theta", 10000.0},
        {"rope_scaling",
         {{"rope_type", "yarn"},
          {"factor", 16.0},
          {"original_max_position_embeddings", 4096},
          {"beta_fast", 64},
          {"beta_slow", 2},
          {"truncate", false},
          {"mscale", 0.707},
          {"mscale_all_dim", 1.0}}}},
       0.9363975061530204,
       {1.0, 0.865964353, 0.153992653, 0.0477578193, 0.0146004185, 0.00768281613, 0.00297192554,
        0.000912953343, 0.000148210864, 4.68683866e-05, 7.21738706e-06}},
      {"yarn with attention_factor, original length by default",
       {{"rope_theta", 10000.0},
        {"rope_scaling",
         {{"rope_type", "yarn"}, {"factor", 40.0}, {"attention_factor", 0.9}, {"mscale", 0.5}}}},
       0.9,
       {1.0, 0.865964353, 0.153992653, 0.0562341288, 0.0237137359, 0.0153992651, 0.00865964312,
        0.00486967526, 0.00237137382, 0.000603664783, 3.44124965e-05}},
      {"yarn with the factor left to the lengths",
       {{"rope_theta", 10000.0},
        {"rope_scaling",
         {{"rope_type", "yarn"}, {"factor", nullptr}, {"original_max_position_embeddings", 4096}}}},
       1.3465735902799727,
       {1.0, 0.865964353, 0.153992653, 0.0562341288, 0.0184123479, 0.0102353282, 0.0044651283,
        0.00178515736, 0.000427531311, 2.34341933e-05, 3.60869353e-06}},
      {"yarn with the original length outside",
       {{"rope_theta", 10000.0},
        {"original_max_position_embeddings", 2048},
        {"rope_scaling",
         {{"rope_type", "yarn"}, {"factor", 8.0}, {"original_max_position_embeddings", 4096}}}},
       1.2079441541679836,
       {1.0, 0.865964353, 0.153992653, 0.0483613536, 0.0154139288, 0.00839259941, 0.00350715546,
        0.00129046408, 0.000296421727, 9.37367731e-05, 1.44347741e-05}},
  };
}

TEST(RopeFrequencies, MatchTransformers) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    Json json =
        testing::config_json("llama", {{"head_dim", 128}, {"max_position_embeddings", 131072}});
    json.update(c.rope);
    const RopeFrequencies rope = rope_frequencies(parse_config(json, "config.json"));
    ASSERT_EQ(rope.frequencies.size(), 64u);
    EXPECT_NEAR(rope.attention_factor, c.attention_factor, 1e-12);
    for (std::size_t i = 0; i < std::size(kPairs); ++i)
      EXPECT_NEAR(rope.frequencies[static_cast<std::size_t>(kPairs[i])] / c.frequencies[i], 1.0,
                  2e-6)
          << "pair " << kPairs[i];
  }
}

TEST(RopeFrequencies, AreDouble) {
  const RopeFrequencies rope =
      rope_frequencies(parse_config(testing::config_json("llama", {{"head_dim", 6}}), "c"));
  ASSERT_EQ(rope.frequencies.size(), 3u);
  EXPECT_DOUBLE_EQ(rope.frequencies[1], std::pow(10000.0, -1.0 / 3.0));
  EXPECT_DOUBLE_EQ(rope.frequencies[2], std::pow(10000.0, -2.0 / 3.0));
}

}  // namespace
}  // namespace longstride
