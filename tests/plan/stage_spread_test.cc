// Layers on stages: as even as can be.
#include "plan/stage_spread.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "base/random.h"
#include "model/presets.h"

namespace longstride {
namespace {

double slowest(const std::vector<double>& layers, double last,
               const std::vector<std::int64_t>& cuts) {
  double most = 0;
  for (std::size_t s = 0; s + 1 < cuts.size(); ++s) {
    double sum = s + 2 == cuts.size() ? last : 0;
    for (std::int64_t l = cuts[s]; l < cuts[s + 1]; ++l) sum += layers[static_cast<std::size_t>(l)];
    most = std::max(most, sum);
  }
  return most;
}

double least_by_trying_all(const std::vector<double>& layers, double last, std::int64_t stages) {
  double least = 1e300;
  std::vector<std::int64_t> cuts = {0};
  const std::function<void()> go_on = [&] {
    if (std::ssize(cuts) == stages) {
      cuts.push_back(std::ssize(layers));
      least = std::min(least, slowest(layers, last, cuts));
      cuts.pop_back();
      return;
    }
    const std::int64_t left = stages - std::ssize(cuts);
    for (std::int64_t cut = cuts.back() + 1; cut <= std::ssize(layers) - left; ++cut) {
      cuts.push_back(cut);
      go_on();
      cuts.pop_back();
    }
  };
  go_on();
  return least;
}

TEST(StageSpread, IsAsEvenAsCanBe) {
  Random random(4);
  for (int i = 0; i < 200; ++i) {
    std::vector<double> layers(1 + random.below(9));
    for (double& cost : layers) cost = static_cast<double>(1 + random.below(9));
    const auto last = static_cast<double>(random.below(12));
    const auto stages = static_cast<std::int64_t>(1 + random.below(layers.size()));
    const std::vector<std::int64_t> cuts = spread_costs(layers, last, stages);
    ASSERT_EQ(std::ssize(cuts), stages + 1);
    ASSERT_EQ(cuts.front(), 0);
    ASSERT_EQ(cuts.back(), std::ssize(layers));
    ASSERT_TRUE(std::ranges::adjacent_find(cuts, std::greater_equal<>()) == cuts.end());
    EXPECT_EQ(slowest(layers, last, cuts), least_by_trying_all(layers, last, stages));
  }
}

std::vector<std::int64_t> cuts_of(const std::string& preset, std::int64_t tokens,
                                  std::int64_t stages) {
  const ModelConfig config = find_preset(preset);
  NumericsRecord numerics;
  numerics.chunk_tokens = 4096;
  return spread_layers(config, numerics, tokens, stages);
}

// The head costs as much as a few layers where sequences are short.
TEST(StageSpread, TheHeadCounts) {
  EXPECT_EQ(cuts_of("qwen2.5-7b", 1 << 18, 7),
            (std::vector<std::int64_t>{0, 4, 8, 12, 16, 20, 24, 28}));
  const std::vector<std::int64_t> cuts = cuts_of("qwen2.5-7b", 8192, 4);
  EXPECT_LT(cuts[4] - cuts[3], cuts[1] - cuts[0]);
}

TEST(StageSpread, WindowsCostLess) {
  ModelConfig config = find_preset("qwen2.5-7b");
  std::fill_n(config.windows.begin(), 14, 1024);
  NumericsRecord numerics;
  numerics.chunk_tokens = 4096;
  EXPECT_GT(spread_layers(config, numerics, 1 << 20, 2)[1], 14);
}

}  // namespace
}  // namespace longstride
