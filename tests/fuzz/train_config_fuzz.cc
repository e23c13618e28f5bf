// Any text as a run's TOML file, and any as overrides: an Error, or a configuration that can be
// written down and read again. The input is the file, then the overrides; zeros stand between them.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "train/config.h"

namespace {

std::vector<std::string> split_at_zeros(std::string_view input) {
  std::vector<std::string> parts;
  for (;;) {
    const std::size_t end = input.find('\0');
    parts.emplace_back(input.substr(0, end));
    if (end == std::string_view::npos) return parts;
    input.remove_prefix(end + 1);
  }
}

// Paths on a command line need not be UTF-8; TOML and JSON are.
bool is_utf8(const longstride::OrderedJson& json) {
  try {
    return !json.dump().empty();
  } catch (const longstride::OrderedJson::exception&) {
    return false;
  }
}

void write_down(const longstride::TrainConfig& config) {
  if (!is_utf8(longstride::config_to_json(config))) return;
  const std::string toml = longstride::config_to_toml(config);
  try {
    if (longstride::config_to_toml(longstride::parse_train_config(toml, "again", "")) != toml)
      std::abort();
  } catch (const longstride::Error&) {
    std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::vector<std::string> parts =
      split_at_zeros(std::string_view(reinterpret_cast<const char*>(data), size));
  const std::string toml = parts.front();
  parts.erase(parts.begin());
  try {
    write_down(longstride::parse_train_config(toml, "fuzz.toml", "base", parts));
  } catch (const longstride::Error&) {
  }
  return 0;
}
