// Session: what a loop of one's own relies on. The package's tests say more (tests/python/engine).
#include "api/session.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <thread>

#include "base/error.h"
#include "base/random.h"
#include "tests/data/temp_directory.h"

namespace longstride::api {
namespace {

constexpr std::size_t kTokens = 150;

class SessionTest : public testing::Test {
 protected:
  SessionTest() {
    Random random(3);
    for (std::size_t i = 0; i < kTokens; ++i)
      tokens_.push_back(static_cast<std::int32_t>(random.below(320)));
  }
  Batch batch() const { return {.tokens = tokens_}; }
  // All gradients, one after the other.
  static std::vector<float> gradients(Session& session) {
    std::vector<float> all;
    const ParameterSet& set = session.gradients();
    for (std::int64_t i = 0; i < set.size(); ++i) {
      const View view = set.view(i);
      const auto* values = view.as<float>();
      all.insert(all.end(), values, values + view.elements());
    }
    return all;
  }

  std::vector<std::int32_t> tokens_;
  Session session_{{"model.preset=tiny-qwen3", "training.context=256", "training.chunk=64",
                    "training.page=16", "device.name=cpu"}};
};

TEST_F(SessionTest, ScoresWhatItGoesBackwardFrom) {
  const Outcome scored = session_.score(batch()), trained = session_.backward(batch());
  EXPECT_EQ(scored.loss, trained.loss);
  EXPECT_EQ(scored.logprobs, trained.logprobs);
  EXPECT_EQ(trained.targets, std::int64_t{kTokens} - 1);
  EXPECT_GT(session_.gradient_norm(), 0);
  session_.zero_gradients();
  EXPECT_EQ(session_.gradient_norm(), 0);
}

// Weights that are functions of the log-probabilities, in one call and in two.
TEST_F(SessionTest, BackwardOfIsBackwardWithItsWeights) {
  const auto weights_of = [](std::span<const float> logprobs) {
    std::vector<float> weights;
    for (const float p : logprobs) weights.push_back(std::sin(p));
    return weights;
  };
  const Outcome once = session_.backward_of(batch(), weights_of);
  const std::vector<float> want = gradients(session_);
  session_.zero_gradients();
  const std::vector<float> weights = weights_of(session_.score(batch()).logprobs);
  Batch weighted = batch();
  weighted.weights = weights;
  weighted.divisor = 1;
  const Outcome twice = session_.backward(weighted);
  EXPECT_EQ(once.logprobs, twice.logprobs);
  EXPECT_EQ(gradients(session_), want);
}

TEST_F(SessionTest, AnUpdateLowersTheLoss) {
  const double before = session_.backward(batch()).loss;
  EXPECT_GT(session_.update(1e-2, std::nullopt), 0);
  EXPECT_EQ(session_.updates(), 1);
  EXPECT_LT(session_.score(batch()).loss, before);
}

TEST_F(SessionTest, AStoppedCallLeavesAPartialSum) {
  int polls = 0;
  EXPECT_THROW(session_.backward(batch(), [&](const SequenceProgress&) { return ++polls > 5; }),
               Interrupted);
  EXPECT_TRUE(says(error_of([&] { session_.update(1e-3, std::nullopt); }), {"partial sum"}));
  EXPECT_TRUE(says(error_of([&] { session_.backward(batch()); }), {"partial sum"}));
  session_.score(batch());  // needs no gradients
  session_.zero_gradients();
  session_.backward(batch());
}

// A loss that throws: nothing hangs, and the gradients are marked.
TEST_F(SessionTest, ALossThatThrows) {
  EXPECT_THROW(session_.backward_of(batch(),
                                    [](std::span<const float>) -> std::vector<float> {
                                      throw Error("no such loss", "give another");
                                    }),
               Error);
  session_.zero_gradients();
  const auto broken = [](std::span<const float> p) {
    return std::vector<float>(p.size(), std::nanf(""));
  };
  EXPECT_TRUE(says(error_of([&] { session_.backward_of(batch(), broken); }),
                   {"the gradient of the loss[0] is nan"}));
  session_.zero_gradients();
  session_.backward(batch());
}

// Every row of a tied embedding has a gradient as head, which others see after each call.
TEST_F(SessionTest, ATiedEmbeddingIsWholeAfterEveryCall) {
  Session tied{{"model.preset=tiny-qwen2", "training.context=256", "training.chunk=64",
                "training.page=16", "device.name=cpu"}};
  const View embedding = tied.gradients().view(0), head = tied.gradients().head_gradient();
  ASSERT_EQ(tied.gradients().specs()[0].name, "model.embed_tokens.weight");
  ASSERT_TRUE(head.present());
  EXPECT_TRUE(tied.plan().numerics.tied_apart);
  EXPECT_EQ(tied.plan().needs.gradients, tied.gradients().bytes());
  std::int64_t row = 0;  // of a token that the lookup does not read
  while (std::ranges::find(tokens_, static_cast<std::int32_t>(row)) != tokens_.end()) ++row;
  ASSERT_LT(row, embedding.dim(0));
  const auto values = [&] {
    const auto* begin = embedding.rows(row, 1).as<float>();
    return std::vector<float>(begin, begin + embedding.dim(1));
  };
  const auto empty = [&] {
    const auto* begin = head.as<float>();
    return std::all_of(begin, begin + head.elements(), [](float g) { return g == 0; });
  };
  tied.backward(batch());
  const std::vector<float> once = values();
  EXPECT_TRUE(std::ranges::any_of(once, [](float g) { return g != 0; }));
  EXPECT_TRUE(empty());
  tied.backward_of(batch(), [](std::span<const float> p) {
    return std::vector<float>(p.size(), 1.0f / static_cast<float>(kTokens - 1));
  });
  const std::vector<float> twice = values();
  for (std::size_t i = 0; i < once.size(); ++i)
    EXPECT_NEAR(twice[i], 2 * once[i], 1e-4f * std::abs(once[i]) + 1e-7f);
  EXPECT_TRUE(empty());
}

TEST_F(SessionTest, BelongsToItsThread) {
  std::string message;
  std::thread([&] { message = error_of([&] { session_.score(batch()); }); }).join();
  EXPECT_TRUE(says(message, {"thread that made it"}));
}

TEST_F(SessionTest, SavesOnce) {
  const TempDirectory files;
  const std::string model = (files.path() / "model").string();
  session_.save(model);
  EXPECT_TRUE(std::filesystem::exists(files.path() / "model" / "config.json"));
  EXPECT_TRUE(says(error_of([&] { session_.save(model); }), {"exists already"}));
}

TEST_F(SessionTest, RefusesBeforeAnythingChanges) {
  const auto refuses = [&](const char* part, const Batch& wrong) {
    EXPECT_TRUE(says(error_of([&] { session_.backward(wrong); }), {part}));
  };
  const std::vector<float> short_weights(3, 1.0f), negative(kTokens, -1.0f),
      infinite(kTokens, HUGE_VALF);
  const std::vector<std::int32_t> large(300, 1), outside = {1, 320};
  const std::vector<std::int64_t> late = {0, 400};
  refuses("longer than the engine's context", {.tokens = large});
  refuses("the vocabulary has 320", {.tokens = outside});
  refuses("weights has 3 entries", {.tokens = tokens_, .weights = short_weights});
  refuses("no divisor", {.tokens = tokens_, .weights = negative});
  refuses("weights[0] is inf", {.tokens = tokens_, .weights = infinite});
  refuses("documents: 400", {.tokens = tokens_, .documents = late});
  EXPECT_EQ(session_.gradient_norm(), 0);
}

TEST(SessionSettings, AreThoseOfAnEngineAlone) {
  EXPECT_THROW(Session({"model.preset=tiny-qwen2", "data.path=x"}), Error);
  EXPECT_THROW(Session({"model.preset=tiny-qwen2", "training.steps=5"}), Error);
  EXPECT_THROW(Session({"model.preset=tiny-qwen2", "lora.rnk=4"}), Error);
}

}  // namespace
}  // namespace longstride::api
