// Malformed TOML met two faults of its library: a "[" at the end of a line failed an assertion, in
// builds that have them, and a letter such as "é" outside quotes was undefined behaviour.
#include <gtest/gtest.h>

#include "base/error.h"
#include "train/config.h"

namespace longstride {
namespace {

TEST(TomlMalformed, IsAnError) {
  for (const char* text :
       {"[", "[\n", "[\nmodel]\n", "[[\n", "[a.\n]", "x.\n", "a = [\n", "= 1", ".a = 1",
        "a = \xc3\xa9", "\xc3\xa9 = 1", "[\xc3\xa9]", "a = 1 \xc9\xbd", "a \xc2\xa1 = 1"})
    EXPECT_THROW(parse_train_config(text, "run.toml", ""), Error) << text;
}

}  // namespace
}  // namespace longstride
