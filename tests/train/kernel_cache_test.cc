#include "train/kernel_cache.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "base/files.h"
#include "tests/data/temp_directory.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;

TEST(KernelCache, RemembersByMachineAndAdds) {
  const TempDirectory directory;
  const fs::path file = directory.path() / "deep" / "kernels.json";
  EXPECT_TRUE(remembered_choices(file, "one").empty());
  remember_choices(file, "one", {{"a", "1"}, {"b", "2"}});
  remember_choices(file, "two", {{"a", "9"}});
  // Existing entries win, and later runs get them.
  EXPECT_EQ(remember_choices(file, "one", {{"b", "3"}, {"c", "4"}}),
            (ops::KernelChoices{{"b", "2"}, {"c", "4"}}));
  EXPECT_EQ(remembered_choices(file, "one"),
            (ops::KernelChoices{{"a", "1"}, {"b", "2"}, {"c", "4"}}));
  EXPECT_EQ(remembered_choices(file, "two"), (ops::KernelChoices{{"a", "9"}}));
  EXPECT_TRUE(remembered_choices(file, "three").empty());
}

TEST(KernelCache, DamageIsMeasuredAnewAndReplaced) {
  const TempDirectory directory;
  for (const char* text : {"", "{", "[1]", "7", "{\"one\": 3}", "{\"one\": {\"a\": 3}}"}) {
    const fs::path file = directory.write_text("kernels.json", text);
    EXPECT_TRUE(remembered_choices(file, "one").empty()) << text;
    for (const char* machine : {"one", "two"}) {
      EXPECT_EQ(remember_choices(file, machine, {{"a", "1"}}), (ops::KernelChoices{{"a", "1"}}))
          << text;
      EXPECT_EQ(remembered_choices(file, machine), (ops::KernelChoices{{"a", "1"}})) << text;
    }
  }
}

TEST(KernelCache, APlaceThatCannotBeWrittenStopsNothing) {
  const TempDirectory directory;
  const fs::path blocked = directory.write_text("file", "") / "kernels.json";
  EXPECT_EQ(remember_choices(blocked, "one", {{"a", "1"}}), (ops::KernelChoices{{"a", "1"}}));
  EXPECT_TRUE(remembered_choices(blocked, "one").empty());
  EXPECT_EQ(remember_choices({}, "one", {{"a", "1"}}), (ops::KernelChoices{{"a", "1"}}));
  EXPECT_TRUE(remembered_choices({}, "one").empty());
}

TEST(KernelCache, LiesWhereTheEnvironmentSays) {
  ::setenv("LONGSTRIDE_CACHE", "/here", 1);
  EXPECT_EQ(kernel_cache_file(), "/here/kernels.json");
  ::setenv("LONGSTRIDE_CACHE", "off", 1);
  EXPECT_EQ(kernel_cache_file(), "");
  ::unsetenv("LONGSTRIDE_CACHE");
  ::setenv("XDG_CACHE_HOME", "/cache", 1);
  EXPECT_EQ(kernel_cache_file(), "/cache/longstride/kernels.json");
  ::unsetenv("XDG_CACHE_HOME");
}

}  // namespace
}  // namespace longstride
