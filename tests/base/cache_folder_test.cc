#include "base/cache_folder.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <string>
#include <vector>

namespace longstride {
namespace {

// Sets variables of the environment (an empty text: unsets them), and restores them at the end.
class Environment {
 public:
  ~Environment() {
    for (const auto& [name, value, existed] : before_)
      existed ? setenv(name, value.c_str(), 1) : unsetenv(name);
  }
  void set(const char* name, const std::string& value) {
    const char* now = getenv(name);
    before_.insert(before_.begin(), {name, now != nullptr ? now : "", now != nullptr});
    value.empty() ? unsetenv(name) : setenv(name, value.c_str(), 1);
  }

 private:
  struct Variable {
    const char* name;
    std::string value;
    bool existed;
  };
  std::vector<Variable> before_;
};

TEST(CacheFolder, TheMostSpecificVariableNamesIt) {
  Environment environment;
  environment.set("HOME", "/home/someone");
  environment.set("XDG_CACHE_HOME", "");
  environment.set("LONGSTRIDE_CACHE", "");
  EXPECT_EQ(cache_folder(), "/home/someone/.cache/longstride");
  environment.set("XDG_CACHE_HOME", "/caches");
  EXPECT_EQ(cache_folder(), "/caches/longstride");
  environment.set("LONGSTRIDE_CACHE", "/mine");
  EXPECT_EQ(cache_folder(), "/mine");
  environment.set("LONGSTRIDE_CACHE", "off");
  EXPECT_EQ(cache_folder(), std::nullopt);
  environment.set("LONGSTRIDE_CACHE", "");
  environment.set("XDG_CACHE_HOME", "");
  environment.set("HOME", "");
  EXPECT_EQ(cache_folder(), std::nullopt);
}

}  // namespace
}  // namespace longstride
