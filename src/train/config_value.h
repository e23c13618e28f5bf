// Converts single values of a configuration between their text and the field that holds them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <variant>
#include <vector>

#include "train/config_table.h"

namespace longstride {

// A value of a type that no key has; `name` is that type ("a table", "a date").
struct OtherConfigValue {
  std::string name;
  bool operator==(const OtherConfigValue&) const = default;
};

using ConfigValue = std::variant<bool, std::int64_t, double, std::string, std::vector<std::string>,
                                 std::vector<double>, OtherConfigValue>;

// Checks the value against the key and stores it. Relative paths are taken from `base_directory`.
// An empty string leaves paths, texts and optional integers without a value. Throws Error; `where`
// begins its message.
void set_config_value(const ConfigKey& key, const ConfigValue& value, const std::string& where,
                      const std::filesystem::path& base_directory, TrainConfig& config);

// Throws Error if the stored value breaks the key's limits, or a required one is missing.
void check_config_value(const ConfigKey& key, const TrainConfig& config);

// The stored value; an empty text, path or list gives an empty string or list, an empty optional an
// empty string.
ConfigValue get_config_value(const ConfigKey& key, const TrainConfig& config);
bool is_unset(const ConfigValue& value);

}  // namespace longstride
