#include "train/kernel_cache.h"

#include <cstdlib>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/log.h"

namespace longstride {
namespace fs = std::filesystem;
namespace {

const char* environment(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nobody sets it
  return value != nullptr && *value != '\0' ? value : nullptr;
}

Json read(const fs::path& file) {
  std::error_code none;
  if (file.empty() || !fs::exists(file, none)) return Json::object();
  try {
    Json json = Json::parse(read_text(file));
    if (json.is_object()) return json;
    log_warning("{} is not a JSON object: kernels are measured anew", file.string());
  } catch (const std::exception& e) {
    log_warning("{} cannot be read, so kernels are measured anew: {}", file.string(), e.what());
  }
  return Json::object();
}

}  // namespace

fs::path kernel_cache_file() {
  constexpr const char* kName = "kernels.json";
  if (const char* here = environment("LONGSTRIDE_CACHE")) return fs::path(here) / kName;
  if (const char* cache = environment("XDG_CACHE_HOME"))
    return fs::path(cache) / "longstride" / kName;
  if (const char* home = environment("HOME"))
    return fs::path(home) / ".cache" / "longstride" / kName;
  return {};
}

Choices remembered_choices(const fs::path& file, const std::string& machine) {
  const Json json = read(file);
  Choices choices;
  if (const auto found = json.find(machine); found != json.end() && found->is_object())
    for (const auto& [what, how] : found->items())
      if (how.is_string()) choices[what] = how.get<std::string>();
  return choices;
}

void remember_choices(const fs::path& file, const std::string& machine, const Choices& choices) {
  if (file.empty()) {
    log_warning("no HOME: measured kernels are not remembered for the next run");
    return;
  }
  Json json = read(file);
  for (const auto& [what, how] : choices) json[machine][what] = how;
  try {
    fs::create_directories(file.parent_path());
    write_file_atomic(file, json.dump(1) + "\n");
  } catch (const std::exception& e) {
    log_warning("measured kernels are not remembered for the next run: {}", e.what());
  }
}

}  // namespace longstride
