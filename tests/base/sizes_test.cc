#include "base/sizes.h"

#include <gtest/gtest.h>

#include <limits>
#include <utility>
#include <vector>

#include "base/random.h"
#include "tests/data/temp_directory.h"

namespace longstride {
namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

TEST(ParseSize, KnowsEveryUnit) {
  const std::vector<std::pair<std::string, std::int64_t>> cases = {
      {"0", 0},
      {"1", 1},
      {"4096", 4096},
      {"7B", 7},
      {"1K", 1024},
      {"1M", 1 << 20},
      {"1G", 1 << 30},
      {"1T", std::int64_t{1} << 40},
      {"3KiB", 3 * 1024},
      {"3MiB", 3 << 20},
      {"3GiB", std::int64_t{3} << 30},
      {"3TiB", std::int64_t{3} << 40},
      {"2KB", 2000},
      {"2MB", 2'000'000},
      {"2GB", 2'000'000'000},
      {"2TB", 2'000'000'000'000},
      {"118gib", std::int64_t{118} << 30},
      {"128k", 128 * 1024},
      {"1 GiB", 1 << 30},
      {"1.5K", 1536},
      {"0.25GiB", 1 << 28},
      {"1.5KB", 1500},
      {".5M", 1 << 19},
  };
  for (const auto& [text, value] : cases) EXPECT_EQ(parse_size(text, "size"), value) << text;
}

TEST(ParseSize, KeepsEveryDigit) {
  EXPECT_EQ(parse_size("9223372036854775807", "size"), kMost);
  EXPECT_EQ(parse_size("9007199254740993", "size"), 9007199254740993);  // 2^53 + 1
  EXPECT_EQ(parse_size("8388607T", "size"), std::int64_t{8388607} << 40);
}

TEST(ParseSize, RefusesWhatDoesNotFit) {
  for (const char* text : {"9223372036854775808", "8388608T", "99999999999999999999", "8388608.0T",
                           "9223372036854775.808TB", "9999999999G"})
    EXPECT_FALSE(error_of([&] { parse_size(text, "context"); }).empty()) << text;
  EXPECT_TRUE(says(error_of([] { parse_size("8388608T", "context"); }),
                   {"context", "'8388608T'", "too large"}));
  EXPECT_FALSE(error_of([] { parse_size(std::string(500, '9'), "context"); }).empty());
}

TEST(ParseSize, RefusesGarbage) {
  for (const char* text :
       {"",    " ",    "K",  "GiB", "-1",    "+1",  "-5K",   " 5",   "1e3",  "1.2.3", ".",   "1..",
        "1.5", "2.5B", "5X", "5KK", "5KiBs", "5Ki", "5 K B", "1,5K", "0x10", "inf",   "nan", "12a"})
    EXPECT_TRUE(says(error_of([&] { parse_size(text, "model.context"); }),
                     {"model.context", "'" + std::string(text) + "'", "write a number"}))
        << text;
}

TEST(FormatCount, IsExact) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(5000), "5000");
  EXPECT_EQ(format_count(1024), "1K");
  EXPECT_EQ(format_count(65536), "64K");
  EXPECT_EQ(format_count(1 << 20), "1M");
  EXPECT_EQ(format_count(std::int64_t{1} << 50), "1024T");
}

TEST(FormatCount, ComesBack) {
  Random random(3);
  std::vector<std::int64_t> values = {0, 1, 1023, 1024, 1025, kMost};
  for (int i = 0; i < 2000; ++i) {
    const std::uint64_t odd = random.next_u64() >> (1 + random.below(63));
    values.push_back(static_cast<std::int64_t>(odd));
    values.push_back(static_cast<std::int64_t>((odd >> 40) << random.below(40)));
  }
  for (const std::int64_t value : values)
    EXPECT_EQ(parse_size(format_count(value), "count"), value) << format_count(value);
}

TEST(FormatBytes, ChoosesTheUnit) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(512), "512 B");
  EXPECT_EQ(format_bytes(1024), "1.00 KiB");
  EXPECT_EQ(format_bytes(12.0 * 1024 * 1024), "12.00 MiB");
  EXPECT_EQ(format_bytes(1.5 * 1024 * 1024 * 1024), "1.50 GiB");
  EXPECT_EQ(format_bytes(5000.0 * 1024 * 1024 * 1024 * 1024), "5000.00 TiB");
  EXPECT_EQ(format_bytes(-2048), "-2.00 KiB");
}

}  // namespace
}  // namespace longstride
