// A configuration, and the table of all keys, as text.
#include <fmt/format.h>

#include "base/sizes.h"
#include "train/config.h"
#include "train/config_table.h"
#include "train/config_value.h"

namespace longstride {
namespace {

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      out += fmt::format("\\u{:04X}", static_cast<unsigned>(c));
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string toml_text(const ConfigValue& value) {
  if (const auto* x = std::get_if<bool>(&value)) return *x ? "true" : "false";
  if (const auto* x = std::get_if<std::int64_t>(&value)) return fmt::format("{}", *x);
  if (const auto* x = std::get_if<double>(&value)) return fmt::format("{}", *x);
  if (const auto* x = std::get_if<std::string>(&value)) return quoted(*x);
  std::string list;
  if (const auto* numbers = std::get_if<std::vector<double>>(&value)) {
    for (const double x : *numbers) list += fmt::format("{}{}", list.empty() ? "" : ", ", x);
    return "[" + list + "]";
  }
  for (const std::string& x : std::get<std::vector<std::string>>(value))
    list += (list.empty() ? "" : ", ") + quoted(x);
  return "[" + list + "]";
}

OrderedJson json_value(const ConfigValue& value) {
  if (const auto* x = std::get_if<bool>(&value)) return *x;
  if (const auto* x = std::get_if<std::int64_t>(&value)) return *x;
  if (const auto* x = std::get_if<double>(&value)) return *x;
  if (const auto* x = std::get_if<std::string>(&value)) return *x;
  if (const auto* x = std::get_if<std::vector<double>>(&value)) return *x;
  return std::get<std::vector<std::string>>(value);
}

// Calls f(key, value) for the keys of a section that have a value.
template <class F>
void for_values(const ConfigSection& section, const TrainConfig& config, const F& f) {
  for (const ConfigKey& key : config_keys()) {
    if (std::string_view(key.section) != section.name) continue;
    const ConfigValue value = get_config_value(key, config);
    if (!is_unset(value)) f(key, value);
  }
}

std::string default_text(const ConfigKey& key) {
  if (key.required) return "required";
  if (key.default_note != nullptr) return key.default_note;
  const ConfigValue value = get_config_value(key, TrainConfig{});
  if (is_unset(value)) return "none";
  if (key.type == ConfigType::kSize)
    return fmt::format("`\"{}\"`", format_count(std::get<std::int64_t>(value)));
  return fmt::format("`{}`", toml_text(value));
}

}  // namespace

std::string config_to_toml(const TrainConfig& config) {
  std::string out;
  for (const ConfigSection& section : config_sections()) {
    out += fmt::format("{}[{}]\n", out.empty() ? "" : "\n", section.name);
    for_values(section, config, [&](const ConfigKey& key, const ConfigValue& value) {
      out += fmt::format("{} = {}\n", key.key, toml_text(value));
    });
  }
  return out;
}

OrderedJson config_to_json(const TrainConfig& config) {
  OrderedJson out;
  for (const ConfigSection& section : config_sections()) {
    OrderedJson& keys = out[section.name] = OrderedJson::object();
    for_values(section, config, [&](const ConfigKey& key, const ConfigValue& value) {
      keys[key.key] = json_value(value);
    });
  }
  return out;
}

std::string configuration_markdown() {
  std::string out;
  for (const ConfigSection& section : config_sections()) {
    out += fmt::format("{}## [{}]\n\n{}\n\n| key | type | default | meaning |\n|---|---|---|---|\n",
                       out.empty() ? "" : "\n", section.name, section.description);
    for (const ConfigKey& key : config_keys())
      if (std::string_view(key.section) == section.name)
        out += fmt::format("| `{}` | {} | {} | {} |\n", key.name(), key.type_text(),
                           default_text(key), key.description);
  }
  return out;
}

}  // namespace longstride
