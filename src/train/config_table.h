// The one table of configuration keys, which drives parsing, checks, suggestions, defaults, dumps
// and documentation.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "train/config.h"

namespace longstride {

// Where a key's value lives in a TrainConfig. An empty string, path, list or optional has no value.
using ConfigField = std::variant<bool*, std::int64_t*, double*, std::string*,
                                 std::optional<std::int64_t>*, std::optional<double>*,
                                 std::filesystem::path*, std::vector<std::filesystem::path>*,
                                 std::vector<std::string>*, std::vector<double>*, Packing*>;

enum class ConfigType : std::uint8_t {
  kBool,
  kInteger,
  kSize,    // an integer, or a string such as "128K"
  kNumber,  // integer or float, finite
  kChoice,  // one of `choices`
  kText,
  kPath,
  kPaths,    // a path or an array of paths
  kTexts,    // a string or an array of strings
  kNumbers,  // an array of numbers, each within the limits
  kPacking,  // true, false or "whole"
};

// Limits of a key's values, beyond their type. Bounds are for integers, sizes and numbers.
struct ConfigLimits {
  std::vector<std::string> choices = {};
  std::optional<double> at_least = {}, at_most = {}, over = {}, under = {};
  std::int64_t multiple_of = 1;
};

struct ConfigKey {
  const char* section;
  const char* key;
  ConfigType type;
  const char* description;  // one line, for the table
  ConfigField (*field)(TrainConfig&);
  ConfigLimits limits = {};
  bool required = false;
  // In the table, in place of the default value. A choice that has one may be left unset.
  const char* default_note = nullptr;

  std::string name() const { return std::string(section) + "." + key; }
  // "integer, at least 1": for the table and for messages.
  std::string type_text() const;
};

struct ConfigSection {
  const char* name;
  const char* description;
};

std::span<const ConfigSection> config_sections();
std::span<const ConfigKey> config_keys();
// nullptr if there is none.
const ConfigKey* find_config_key(std::string_view section, std::string_view key);

}  // namespace longstride
