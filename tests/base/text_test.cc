#include "base/text.h"

#include <gtest/gtest.h>

namespace longstride {
namespace {

const std::vector<std::string> kKeys = {"learning_rate", "seed", "steps", "warmup", "lr"};

TEST(Nearest, FindsTypos) {
  EXPECT_EQ(nearest("learning_rat", kKeys), "learning_rate");  // a letter is missing
  EXPECT_EQ(nearest("learnning_rate", kKeys), "learning_rate");
  EXPECT_EQ(nearest("laerning_rate", kKeys), "learning_rate");  // swapped
  EXPECT_EQ(nearest("learning-rate", kKeys), "learning_rate");
  EXPECT_EQ(nearest("sead", kKeys), "seed");
  EXPECT_EQ(nearest("step", kKeys), "steps");
  EXPECT_EQ(nearest("l", kKeys), "lr");
}

TEST(Nearest, PrefersTheNearerThenTheFirst) {
  EXPECT_EQ(nearest("stepp", {"stop", "steps", "step"}), "steps");
  EXPECT_EQ(nearest("abc", {"xbc", "abx"}), "xbc");
  EXPECT_EQ(nearest("seed", kKeys), "seed");
}

TEST(Nearest, SaysNothingWhereNothingIsNear) {
  EXPECT_EQ(nearest("checkpoint", kKeys), "");
  EXPECT_EQ(nearest("seed", {}), "");
  EXPECT_EQ(nearest("xy", kKeys), "");  // no letter of "lr"
  EXPECT_EQ(nearest("", kKeys), "");
}

}  // namespace
}  // namespace longstride
