#include "base/cache_folder.h"

#include <cstdlib>
#include <string_view>

namespace longstride {
namespace {

const char* environment(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nobody sets it
  return value != nullptr && *value != '\0' ? value : nullptr;
}

}  // namespace

std::optional<std::filesystem::path> cache_folder() {
  if (const char* here = environment("LONGSTRIDE_CACHE")) {
    if (std::string_view(here) == "off") return std::nullopt;
    return here;
  }
  if (const char* cache = environment("XDG_CACHE_HOME"))
    return std::filesystem::path(cache) / "longstride";
  if (const char* home = environment("HOME"))
    return std::filesystem::path(home) / ".cache" / "longstride";
  return std::nullopt;
}

}  // namespace longstride
