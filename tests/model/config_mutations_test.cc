// Any change to a valid config.json gives a config or an Error, never anything else.
#include <gtest/gtest.h>

#include <iterator>
#include <limits>

#include "base/random.h"
#include "model/parameters.h"
#include "model/presets.h"
#include "model/rope_frequencies.h"
#include "tests/model/fixtures.h"

namespace longstride {
namespace {

Json random_value(Random& random) {
  const Json values[] = {nullptr,
                         true,
                         false,
                         0,
                         1,
                         -1,
                         3,
                         64,
                         1e300,
                         0.5,
                         -0.5,
                         "",
                         "silu",
                         "yarn",
                         "default",
                         Json::array(),
                         Json::array({"sliding_attention", "full_attention"}),
                         Json::object(),
                         Json{{"rope_type", "yarn"}, {"factor", 4}},
                         std::numeric_limits<std::int64_t>::max(),
                         std::numeric_limits<std::uint64_t>::max(),
                         std::numeric_limits<std::int64_t>::min()};
  return values[random.below(std::size(values))];
}

void mutate(Json& object, Random& random) {
  auto it = object.begin();
  std::advance(it, static_cast<std::ptrdiff_t>(random.below(object.size())));
  if (it->is_object() && !it->empty() && random.below(2) == 0) return mutate(*it, random);
  if (random.below(6) == 0) {
    object.erase(it);
  } else {
    *it = random_value(random);
  }
}

TEST(Config, SurvivesMutations) {
  Random random(17);
  int accepted = 0;
  ::testing::internal::CaptureStderr();
  for (int round = 0; round < 20'000; ++round) {
    const auto names = preset_names();
    Json json = find_preset(names[random.below(names.size())]).raw;
    json.update(
        {{"head_dim", 16},
         {"layer_types", nullptr},
         {"rope_parameters", {{"rope_type", "linear"}, {"rope_theta", 1e4}, {"factor", 2.0}}}});
    if (random.below(2) == 0) json.erase("rope_parameters");
    for (std::uint64_t n = 1 + random.below(3); n > 0; --n) mutate(json, random);
    try {
      const ModelConfig config = parse_config(json, "config.json");
      ASSERT_GT(parameter_count(config), 0);
      if (config.layers < 100) {
        ASSERT_GT(ParameterSet::bytes_needed(parameter_specs(config)), 0);
      }
      ASSERT_EQ(static_cast<std::int64_t>(config.windows.size()), config.layers);
      if (config.head_size < 1000) {
        ASSERT_EQ(rope_frequencies(config).frequencies.size(),
                  static_cast<std::size_t>(config.head_size / 2));
      }
      ++accepted;
    } catch (const Error&) {
    }
  }
  ::testing::internal::GetCapturedStderr();
  EXPECT_GT(accepted, 100);
}

}  // namespace
}  // namespace longstride
