#include "train/config.h"

#include <optional>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "train/config_table.h"
#include "train/config_value.h"
#include "train/toml_library.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;

// A TOML array of strings or of numbers; any other makes a value that no key accepts.
ConfigValue array_value(const toml::array& array) {
  std::vector<std::string> texts;
  std::vector<double> numbers;
  for (const toml::node& element : array) {
    if (element.is_string()) texts.push_back(element.ref<std::string>());
    if (element.is_number()) numbers.push_back(element.value<double>().value());
  }
  if (!numbers.empty() && numbers.size() == array.size()) return numbers;
  if (texts.size() == array.size()) return texts;
  return OtherConfigValue{"an array of other things than strings or numbers"};
}

ConfigValue value_of(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::boolean:
      return node.ref<bool>();
    case toml::node_type::integer:
      return node.ref<std::int64_t>();
    case toml::node_type::floating_point:
      return node.ref<double>();
    case toml::node_type::string:
      return node.ref<std::string>();
    case toml::node_type::array:
      return array_value(*node.as_array());
    case toml::node_type::table:
      return OtherConfigValue{"a table"};
    default:
      return OtherConfigValue{"a date or time"};
  }
}

std::vector<std::string> section_names() {
  std::vector<std::string> names;
  for (const ConfigSection& section : config_sections()) names.emplace_back(section.name);
  return names;
}

bool is_section(std::string_view name) {
  for (const ConfigSection& section : config_sections())
    if (name == section.name) return true;
  return false;
}

std::string joined(const std::vector<std::string>& names) {
  return fmt::format("{}", fmt::join(names, ", "));
}

// The section that has a key of this name, or "".
std::string section_with(std::string_view key) {
  for (const ConfigKey& k : config_keys())
    if (key == k.key) return k.section;
  return "";
}

[[noreturn]] void fail_section(const std::string& name, const std::string& where) {
  const std::vector<std::string> sections = section_names();
  const std::string near = nearest(name, sections);
  throw Error(fmt::format("{}: unknown section [{}]", where, name),
              near.empty() ? "the sections are " + joined(sections)
                           : fmt::format("did you mean [{}]?", near));
}

[[noreturn]] void fail_key(const std::string& section, const std::string& key,
                           const std::string& where) {
  std::vector<std::string> keys;
  for (const ConfigKey& k : config_keys())
    if (section == k.section) keys.emplace_back(k.key);
  const std::string elsewhere = section_with(key);
  const std::string near = nearest(key, keys);
  throw Error(fmt::format("{}: unknown key {}.{}", where, section, key),
              !elsewhere.empty() ? fmt::format("did you mean {}.{}?", elsewhere, key)
              : !near.empty()    ? fmt::format("did you mean {}.{}?", section, near)
                                 : fmt::format("the keys of [{}] are {}", section, joined(keys)));
}

// A value at the top of the file, outside all sections.
[[noreturn]] void fail_outside(const std::string& key, const std::string& where) {
  if (is_section(key))
    throw Error(fmt::format("{}: {} is a section, not a value", where, key),
                fmt::format("write [{}] and its keys below it", key));
  const std::string section = section_with(key);
  throw Error(fmt::format("{}: the key {} stands outside all sections", where, key),
              section.empty() ? "the sections are " + joined(section_names())
                              : fmt::format("put it under [{}]", section));
}

void apply_table(const toml::table& root, const std::string& name, const fs::path& base,
                 TrainConfig& config) {
  const auto at = [&](const auto& thing) {
    return fmt::format("{}:{}", name, thing.source().begin.line);
  };
  for (const auto& [section_key, section_node] : root) {
    const std::string section(section_key.str());
    const toml::table* keys = section_node.as_table();
    if (keys == nullptr) fail_outside(section, at(section_key));
    if (!is_section(section)) fail_section(section, at(section_key));
    for (const auto& [key, node] : *keys) {
      const ConfigKey* known = find_config_key(section, key.str());
      if (known == nullptr) fail_key(section, std::string(key.str()), at(key));
      set_config_value(*known, value_of(node), at(key), base, config);
    }
  }
}

// The text as a single TOML value, or nothing.
std::optional<ConfigValue> toml_value(const std::string& text) {
  if (text.find('\n') != std::string::npos) return std::nullopt;
  try {
    const toml::table table = toml::parse("value = " + text);
    return value_of(*table.get("value"));
  } catch (const toml::parse_error&) {
    return std::nullopt;
  }
}

bool takes_text(ConfigType type) {
  return type == ConfigType::kChoice || type == ConfigType::kText || type == ConfigType::kPath ||
         type == ConfigType::kPaths || type == ConfigType::kTexts;
}

void apply_override(const std::string& text, TrainConfig& config) {
  const std::string where = "--" + text;
  const auto equals = text.find('=');
  const auto dot = text.find('.');
  if (equals == std::string::npos || dot == std::string::npos || dot > equals)
    throw Error(fmt::format("{}: not of the form --section.key=value", where),
                "for example --training.steps=100");
  const std::string section = text.substr(0, dot), key = text.substr(dot + 1, equals - dot - 1),
                    written = text.substr(equals + 1);
  if (!is_section(section)) fail_section(section, where);
  const ConfigKey* known = find_config_key(section, key);
  if (known == nullptr) fail_key(section, key, where);
  ConfigValue value = toml_value(written).value_or(ConfigValue(written));
  // A directory may be called 2024 or 1e5: for keys that take text, only quoted strings and arrays
  // are parsed.
  const bool is_text = std::holds_alternative<std::string>(value) ||
                       std::holds_alternative<std::vector<std::string>>(value);
  if (takes_text(known->type) && !is_text) value = written;
  set_config_value(*known, value, where, "", config);
}

toml::table parse_toml(std::string_view text, const std::string& name) {
  try {
    return toml::parse(text);
  } catch (const toml::parse_error& error) {
    throw Error(
        fmt::format("{}:{}: {}", name, error.source().begin.line, error.description()),
        "the file must be TOML; strings, paths and sizes with a unit stand in quotes: \"128K\"");
  }
}

}  // namespace

TrainConfig parse_train_config(std::string_view text, const std::string& name,
                               const fs::path& base_directory,
                               const std::vector<std::string>& overrides) {
  TrainConfig config;
  apply_table(parse_toml(text, name), name, base_directory, config);
  for (const std::string& override_text : overrides) apply_override(override_text, config);
  validate(config);
  if (config.metrics.file.empty())
    config.metrics.file = config.checkpoint.directory / "metrics.jsonl";
  return config;
}

TrainConfig load_train_config(const fs::path& file, const std::vector<std::string>& overrides) {
  return parse_train_config(read_text(file), file.string(), file.parent_path(), overrides);
}

}  // namespace longstride
