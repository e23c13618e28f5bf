// choose_modules: PEFT's check_target_module_exists, for the modules of our models.
#include <algorithm>
#include <cctype>
#include <optional>
#include <regex>
#include <set>
#include <utility>

#include "base/error.h"
#include "model/adapter_modules.h"

namespace longstride {
namespace {

// True if the pattern means the same to Python's re and to std::regex: literals, groups, classes
// and quantifiers, but nothing that only one of them has.
bool means_the_same(std::string_view p) {
  constexpr std::size_t kMost = 4096;
  if (p.size() > kMost) return false;
  const auto is_name = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
  };
  for (std::size_t i = 0; i < p.size(); ++i) {
    const auto next = [&] { return i + 1 < p.size() ? p[i + 1] : '\0'; };
    switch (p[i]) {
      case '\\':
        ++i;
        if (i == p.size() ||
            std::string_view(".dwDW-|()[]{}*+?^$\\").find(p[i]) == std::string_view::npos)
          return false;
        break;
      case '(':
        if (next() != '?') break;
        i += 2;
        if (i >= p.size() || (p[i] != ':' && p[i] != '!' && p[i] != '=')) return false;
        break;
      case '[': {
        if (next() == '^') ++i;
        const std::size_t end = p.find(']', i + 1);
        if (end == std::string_view::npos || end == i + 1) return false;
        for (++i; i < end; ++i)
          if (!is_name(p[i]) && p[i] != '-' && p[i] != '.' && p[i] != '|' && p[i] != ',')
            return false;
        break;
      }
      case '{': {
        const std::size_t end = p.find('}', i);
        if (end == std::string_view::npos || next() == ',' || next() == '}') return false;
        for (++i; i < end; ++i)
          if (std::isdigit(static_cast<unsigned char>(p[i])) == 0 && p[i] != ',') return false;
        break;
      }
      case '*':
      case '+':
      case '?':
        if (next() == '+') return false;  // possessive
        break;
      case '.':
      case '|':
      case ')':
      case '^':
      case '$':
      case '-':
        break;
      default:
        if (!is_name(p[i])) return false;
    }
  }
  return true;
}

std::regex compiled(const std::string& pattern, const char* field, const std::string& where) {
  try {
    if (means_the_same(pattern)) return std::regex(pattern, std::regex::ECMAScript);
  } catch (const std::regex_error&) {
    // As unusable as one with other syntax.
  }
  throw Error(fmt::format("{}: the pattern of {}, \"{}\", is not supported", where, field, pattern),
              "write the modules' names as a list, such as [\"q_proj\", \"v_proj\"]");
}

// A list entry is a whole name or follows a dot at its end.
bool names(const std::string& entry, const std::string& module) {
  return module == entry || module.ends_with("." + entry);
}

// PEFT leaves out what is, or is inside, a module of modules_to_save.
bool holds(const std::string& saved, const std::string& module) {
  return ("." + module + ".").find("." + saved + ".") != std::string::npos;
}

class Chooser {
 public:
  Chooser(const ModuleChoice& choice, const std::string& where) : choice_(choice) {
    if (!choice.target_pattern.empty())
      target_ = compiled(choice.target_pattern, "target_modules", where);
    if (!choice.excluded_pattern.empty())
      excluded_ = compiled(choice.excluded_pattern, "exclude_modules", where);
  }

  bool chooses(const std::string& module, std::int64_t layer) const {
    if (excluded_ && std::regex_match(module, *excluded_)) return false;
    const auto named = [&](const std::string& entry) { return names(entry, module); };
    if (std::ranges::any_of(choice_.excluded, named)) return false;
    if (std::ranges::any_of(choice_.saved, [&](const std::string& s) { return holds(s, module); }))
      return false;
    if (choice_.all_linear) return layer >= 0;  // without the head
    if (target_) return std::regex_match(module, *target_);
    // A whole name is chosen whatever layers_to_transform says.
    if (std::ranges::find(choice_.targets, module) != choice_.targets.end()) return true;
    return std::ranges::any_of(choice_.targets, named) &&
           (choice_.layers.empty() ||
            std::ranges::find(choice_.layers, layer) != choice_.layers.end());
  }

 private:
  const ModuleChoice& choice_;
  std::optional<std::regex> target_, excluded_;
};

}  // namespace

void choose_modules(const ModuleChoice& choice, const ModelConfig& model, const std::string& where,
                    AdapterConfig& config) {
  for (const std::int64_t layer : choice.layers)
    if (layer >= model.layers)
      throw Error(fmt::format("{}: layers_to_transform names layer {}, but the model has {} layers",
                              where, layer, model.layers),
                  "the adapter was made for another model");
  const Chooser chooser(choice, where);
  for (const char* module : {"lm_head", "model.embed_tokens"})
    if (chooser.chooses(module, -1))
      throw Error(
          fmt::format("{}: target_modules names {}, which can have no adapter here", where, module),
          "train it whole (modules_to_save), or merge the adapter with PEFT");
  std::set<std::pair<std::int64_t, std::string_view>> chosen;
  std::set<std::int64_t> layers;
  std::set<std::string_view> targets;
  for (std::int64_t l = 0; l < model.layers; ++l)
    for (const std::string_view target : adapter_targets(model))
      if (chooser.chooses(adapter_module_name(l, target), l)) {
        chosen.emplace(l, target);
        layers.insert(l);
        targets.insert(target);
      }
  if (chosen.empty())
    throw Error(fmt::format("{}: target_modules matches no projection of the model", where),
                fmt::format("a {} model has {}", name_of(model.architecture),
                            fmt::join(adapter_targets(model), ", ")));
  for (const std::int64_t l : layers)
    for (const std::string_view target : targets)
      if (!chosen.contains({l, target}))
        throw Error(fmt::format("{}: target_modules leaves out {}, but other layers have an "
                                "adapter of their {}",
                                where, adapter_module_name(l, target), target),
                    "targets that differ by layer are not supported");
  config.targets.clear();
  for (const std::string_view target : adapter_targets(model))
    if (targets.contains(target)) config.targets.emplace_back(target);
  config.layers.clear();
  if (static_cast<std::int64_t>(layers.size()) < model.layers)
    config.layers.assign(layers.begin(), layers.end());
}

}  // namespace longstride
