#include "base/error.h"

#include <gtest/gtest.h>

#include <string>

namespace longstride {
namespace {

std::string message_of(void (*f)()) {
  try {
    f();
  } catch (const InternalError& e) {
    return e.what();
  }
  return "";
}

TEST(Error, CarriesItsHint) {
  const Error error("config.toml: no such key", "did you mean 'seed'?");
  EXPECT_STREQ(error.what(), "config.toml: no such key");
  EXPECT_EQ(error.hint(), "did you mean 'seed'?");
  EXPECT_EQ(Error("alone").hint(), "");
}

TEST(Check, NamesFileConditionAndValues) {
  const std::string text = message_of([] {
    const int pages = 3;
    LS_CHECK(pages < 2, "{} pages of {}", pages, "a pool");
  });
  EXPECT_NE(text.find("error_test.cc:"), std::string::npos) << text;
  EXPECT_NE(text.find("check failed: pages < 2: 3 pages of a pool"), std::string::npos) << text;
}

TEST(Check, NeedsNoDetails) {
  const std::string text = message_of([] { LS_CHECK(1 > 2); });
  EXPECT_TRUE(text.ends_with("check failed: 1 > 2")) << text;
}

TEST(Check, PassesQuietlyAndEvaluatesOnce) {
  int calls = 0;
  EXPECT_NO_THROW(LS_CHECK(++calls == 1, "{} calls", calls));
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace longstride
