// A config.json of lists in lists in lists ended the stack, and with it the program.
#include <gtest/gtest.h>

#include "base/error.h"
#include "model/config.h"
#include "tests/data/temp_directory.h"

namespace longstride {
namespace {

TEST(JsonNestedDeeply, IsAnErrorInAConfig) {
  constexpr std::size_t kDepth = 1'000'000;
  const TempDirectory directory;
  directory.write_text(
      "config.json", "{\"model_type\": \"llama\", \"architectures\": " + std::string(kDepth, '[') +
                         std::string(kDepth, ']') + "}");
  EXPECT_THROW(read_config(directory.path()), Error);
}

TEST(JsonNestedDeeply, OrdinaryDepthsAndTextsAreRead) {
  EXPECT_EQ(parse_json("[[[[{\"a\": \"[[[[\\\\\\\"[[\"}]]]]", "x")[0][0][0][0]["a"], "[[[[\\\"[[");
  EXPECT_EQ(parse_json("\"" + std::string(1000, '[') + "\"", "x").get<std::string>().size(), 1000u);
  EXPECT_NO_THROW(parse_json(std::string(100, '[') + std::string(100, ']'), "x"));
  EXPECT_THROW(parse_json(std::string(101, '[') + std::string(101, ']'), "x"), Error);
}

}  // namespace
}  // namespace longstride
