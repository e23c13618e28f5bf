#include "train/config_value.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "base/error.h"
#include "base/sizes.h"
#include "base/text.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;

template <class... Fs>
struct Overloaded : Fs... {
  using Fs::operator()...;
};
template <class... Fs>
Overloaded(Fs...) -> Overloaded<Fs...>;  // clang 14 does not deduce it

constexpr const char* kWhole = "whole";

std::string describe(const ConfigValue& value) {
  return std::visit(Overloaded{
                        [](bool x) { return std::string(x ? "true" : "false"); },
                        [](std::int64_t x) { return fmt::format("{}", x); },
                        [](double x) { return fmt::format("{}", x); },
                        [](const std::string& x) { return fmt::format("the string \"{}\"", x); },
                        [](const std::vector<std::string>&) { return std::string("an array"); },
                        [](const std::vector<double>& x) {
                          return fmt::format("the array [{}]", fmt::join(x, ", "));
                        },
                        [](const OtherConfigValue& x) { return x.name; },
                    },
                    value);
}

[[noreturn]] void fail(const ConfigKey& key, const std::string& where, const ConfigValue& value,
                       std::string hint = "") {
  throw Error(fmt::format("{}: {} must be {}, but is {}", where, key.name(), key.type_text(),
                          describe(value)),
              hint.empty() ? fmt::format("{}: {}", key.name(), key.description) : std::move(hint));
}

bool within(const ConfigLimits& limits, double x) {
  return std::isfinite(x) && (!limits.at_least || x >= *limits.at_least) &&
         (!limits.at_most || x <= *limits.at_most) && (!limits.over || x > *limits.over) &&
         (!limits.under || x < *limits.under);
}

void check(const ConfigKey& key, const ConfigValue& value, const std::string& where) {
  if (const auto* integer = std::get_if<std::int64_t>(&value)) {
    const auto x = static_cast<double>(*integer);
    if (key.limits.at_most && x > *key.limits.at_most)
      fail(key, where, value, fmt::format("it may be {} at most", *key.limits.at_most));
    if (!within(key.limits, x) || *integer % key.limits.multiple_of != 0) fail(key, where, value);
  } else if (const auto* number = std::get_if<double>(&value)) {
    if (!within(key.limits, *number)) fail(key, where, value);
  } else if (const auto* numbers = std::get_if<std::vector<double>>(&value)) {
    for (const double x : *numbers)
      if (!within(key.limits, x)) fail(key, where, value);
  } else if (const auto* text = std::get_if<std::string>(&value);
             text != nullptr && key.type == ConfigType::kChoice) {
    if (text->empty() && key.default_note != nullptr) return;
    const auto& choices = key.limits.choices;
    if (std::find(choices.begin(), choices.end(), *text) != choices.end()) return;
    const std::string near = nearest(*text, choices);
    fail(key, where, value, near.empty() ? "" : fmt::format("did you mean \"{}\"?", near));
  }
}

// The value in the type of its field: sizes as integers, integers of number keys as floats, a
// single path as a list.
ConfigValue converted(const ConfigKey& key, const ConfigValue& value, const std::string& where) {
  const bool is_text = std::holds_alternative<std::string>(value);
  const bool is_integer = std::holds_alternative<std::int64_t>(value);
  switch (key.type) {
    case ConfigType::kBool:
      if (std::holds_alternative<bool>(value)) return value;
      break;
    case ConfigType::kInteger:
      if (is_integer) return value;
      break;
    case ConfigType::kSize:
      if (is_integer) return value;
      if (is_text) return parse_size(std::get<std::string>(value), where + ": " + key.name());
      break;
    case ConfigType::kNumber:
      if (is_integer) return static_cast<double>(std::get<std::int64_t>(value));
      if (std::holds_alternative<double>(value)) return value;
      break;
    case ConfigType::kChoice:
    case ConfigType::kText:
    case ConfigType::kPath:
      if (is_text) return value;
      break;
    case ConfigType::kPaths:
    case ConfigType::kTexts:
      if (is_text) return std::vector<std::string>{std::get<std::string>(value)};
      if (std::holds_alternative<std::vector<std::string>>(value)) return value;
      break;
    case ConfigType::kNumbers:
      if (std::holds_alternative<std::vector<double>>(value)) return value;
      if (is_unset(value)) return std::vector<double>();
      break;
    case ConfigType::kPacking:
      if (std::holds_alternative<bool>(value) || value == ConfigValue(std::string(kWhole)))
        return value;
      break;
  }
  fail(key, where, value);
}

// True if the field is an optional, which then has no value.
template <class T>
bool reset(T&) {
  return false;
}
template <class T>
bool reset(std::optional<T>& x) {
  x.reset();
  return true;
}

fs::path resolved(const std::string& path, const fs::path& base) {
  return path.empty() ? fs::path() : (base / path).lexically_normal();
}

}  // namespace

void set_config_value(const ConfigKey& key, const ConfigValue& written, const std::string& where,
                      const fs::path& base, TrainConfig& config) {
  const ConfigField field = key.field(config);
  const bool unset = written == ConfigValue(std::string()) ||
                     (key.type == ConfigType::kSize && written == ConfigValue(std::string("auto")));
  if (unset && std::visit([](auto* x) { return reset(*x); }, field)) return;
  const ConfigValue value = converted(key, written, where);
  check(key, value, where);
  std::visit(
      Overloaded{
          [&](bool* x) { *x = std::get<bool>(value); },
          [&](std::int64_t* x) { *x = std::get<std::int64_t>(value); },
          [&](double* x) { *x = std::get<double>(value); },
          [&](std::string* x) { *x = std::get<std::string>(value); },
          [&]<class T>(std::optional<T>* x) { *x = std::get<T>(value); },
          [&](fs::path* x) { *x = resolved(std::get<std::string>(value), base); },
          [&](std::vector<fs::path>* x) {
            x->clear();
            for (const std::string& path : std::get<std::vector<std::string>>(value))
              if (!path.empty()) x->push_back(resolved(path, base));
          },
          [&](std::vector<std::string>* x) {
            *x = std::get<std::vector<std::string>>(value);
            std::erase(*x, "");
          },
          [&](std::vector<double>* x) { *x = std::get<std::vector<double>>(value); },
          [&](Packing* x) {
            const bool* on = std::get_if<bool>(&value);
            *x = on == nullptr ? Packing::kWhole : *on ? Packing::kStretches : Packing::kDocuments;
          },
      },
      field);
}

ConfigValue get_config_value(const ConfigKey& key, const TrainConfig& config) {
  // The table's accessors return mutable fields; this only reads.
  const ConfigField field = key.field(const_cast<TrainConfig&>(config));
  return std::visit(Overloaded{
                        []<class T>(const std::optional<T>* x) {
                          return x->has_value() ? ConfigValue(**x) : ConfigValue(std::string());
                        },
                        [](const fs::path* x) { return ConfigValue(x->string()); },
                        [](const std::vector<fs::path>* x) {
                          std::vector<std::string> paths;
                          for (const fs::path& path : *x) paths.push_back(path.string());
                          return ConfigValue(std::move(paths));
                        },
                        [](const Packing* x) {
                          return *x == Packing::kWhole ? ConfigValue(std::string(kWhole))
                                                       : ConfigValue(*x == Packing::kStretches);
                        },
                        [](const auto* x) { return ConfigValue(*x); },
                    },
                    field);
}

bool is_unset(const ConfigValue& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return text->empty();
  if (const auto* list = std::get_if<std::vector<std::string>>(&value)) return list->empty();
  if (const auto* list = std::get_if<std::vector<double>>(&value)) return list->empty();
  return false;
}

void check_config_value(const ConfigKey& key, const TrainConfig& config) {
  const ConfigValue value = get_config_value(key, config);
  // A required integer is 0 until it is set, and 0 is not a valid value of any of them.
  if (key.required && (is_unset(value) || value == ConfigValue(std::int64_t{0})))
    throw Error(fmt::format("{} is missing", key.name()),
                fmt::format("set `{}` under [{}], or give --{}=...: {}", key.key, key.section,
                            key.name(), key.description));
  if (!is_unset(value) || key.type == ConfigType::kChoice) check(key, value, "configuration");
}

}  // namespace longstride
