// The first gradients of a step are written, later ones added: the values are the same.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/random.h"
#include "model/presets.h"
#include "train/engine.h"

namespace longstride {
namespace {

class FirstGradients : public testing::Test {
 protected:
  FirstGradients() {
    const NumericsRecord numerics = choose_numerics(*device_, config_, 32, 16);
    Random random(9);
    for (std::size_t i = 0; i < 100; ++i)
      tokens_.push_back(
          static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(config_.vocabulary))));
    engine_.initialize(3);
    engine_.prepare_step(numerics, engine_.planner(numerics, {.max_tokens = 100}).plan({}));
  }
  std::vector<float> gradients() {
    const View all(engine_.gradients().data(), DType::kF32, {engine_.gradients().bytes() / 4});
    return {all.as<float>(), all.as<float>() + all.elements()};
  }
  void backward() { engine_.backward({tokens_, tokens_, documents_}, 0.01); }
  // Of a projection of the first layer.
  float& a_gradient() {
    const ParameterSet& set = engine_.gradients();
    const auto found = std::ranges::find_if(set.specs(), [](const ParameterSpec& s) {
      return s.name.ends_with("0.mlp.up_proj.weight");
    });
    return set.view(found - set.specs().begin()).as<float>()[5];
  }

  std::unique_ptr<Device> device_ = make_cpu_device();
  ModelConfig config_ = find_preset("tiny-qwen3");
  Engine engine_{*device_, config_, parameter_specs(config_, DType::kF32)};
  std::vector<std::int32_t> tokens_;
  std::vector<std::int64_t> documents_ = {0};
};

TEST_F(FirstGradients, AreThoseAddedToZero) {
  engine_.zero_gradients();
  backward();
  const std::vector<float> written = gradients();
  backward();
  const std::vector<float> added = gradients();  // twice as much
  for (std::size_t i = 0; i < written.size(); ++i)
    ASSERT_NEAR(added[i], 2 * written[i], 1e-5f + 1e-4f * std::abs(written[i])) << i;
  engine_.share_gradients();
  engine_.zero_gradients();
  backward();
  EXPECT_TRUE(gradients() == written);
}

// The test above would not notice if nothing was written, or if too much was.
TEST_F(FirstGradients, OverwriteWhatIsThereUnlessShared) {
  engine_.zero_gradients();
  backward();
  const float alone = a_gradient();
  engine_.zero_gradients();
  a_gradient() = 100;
  backward();
  EXPECT_EQ(a_gradient(), alone);
  engine_.share_gradients();
  engine_.zero_gradients();
  a_gradient() = 100;
  backward();
  EXPECT_NEAR(a_gradient(), 100 + alone, 1e-4);
}

}  // namespace
}  // namespace longstride
