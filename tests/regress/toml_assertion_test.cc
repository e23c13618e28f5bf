// A "[" at the end of a line failed an assertion of the TOML library, in builds that have them, and
// ended the program.
#include <gtest/gtest.h>

#include "base/error.h"
#include "train/config.h"

namespace longstride {
namespace {

TEST(TomlAssertion, AMalformedFileIsAnError) {
  for (const char* text :
       {"[", "[\n", "[\nmodel]\n", "[[\n", "[a.\n]", "x.\n", "a = [\n", "= 1", ".a = 1"})
    EXPECT_THROW(parse_train_config(text, "run.toml", ""), Error) << text;
}

}  // namespace
}  // namespace longstride
