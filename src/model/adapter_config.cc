#include "model/adapter_config.h"

#include <algorithm>
#include <cctype>
#include <cmath>

#include "base/error.h"
#include "model/adapter_modules.h"
#include "model/adapter_support.h"
#include "model/config_fields.h"

namespace longstride {
namespace {

constexpr std::int64_t kMostRank = std::int64_t{1} << 16;
constexpr std::int64_t kMostLayer = std::int64_t{1} << 31;

std::vector<std::string> texts(const Fields& fields, std::string_view key) {
  std::vector<std::string> list;
  for (const Json& item : fields.value(key)) {
    if (!item.is_string() || item.get_ref<const std::string&>().empty())
      fields.fail(key, fmt::format("must hold names, not {}", shown(item)));
    list.push_back(item.get<std::string>());
  }
  return list;
}

// A list of names, or a pattern.
void parse_names(const Fields& fields, std::string_view key, std::vector<std::string>& list,
                 std::string& pattern) {
  if (!fields.has(key)) return;
  const Json& value = fields.value(key);
  if (value.is_string())
    pattern = value.get<std::string>();
  else if (value.is_array())
    list = texts(fields, key);
  else
    fields.fail(key, fmt::format("must be a list of names or a pattern, not {}", shown(value)));
}

std::vector<std::int64_t> parse_layers(const Fields& fields) {
  constexpr std::string_view kKey = "layers_to_transform";
  if (!fields.has(kKey)) return {};
  const Json& value = fields.value(kKey);
  if (!value.is_array()) return {fields.integer(kKey, 0, kMostLayer)};
  std::vector<std::int64_t> layers;
  for (const Json& item : value) {
    if (!item.is_number_integer() || item < 0 || item > kMostLayer)
      fields.fail(kKey, fmt::format("must hold numbers of layers, not {}", shown(item)));
    layers.push_back(item.get<std::int64_t>());
  }
  return layers;
}

// Matters only together with layers_to_transform: which list of layers the numbers count.
void check_layers_pattern(const Fields& fields) {
  constexpr std::string_view kKey = "layers_pattern";
  if (!fields.has(kKey)) return;
  const Json& value = fields.value(kKey);
  if (value.empty() || value == "") return;
  const std::vector<std::string> patterns =
      value.is_string() ? std::vector{value.get<std::string>()} : texts(fields, kKey);
  for (const std::string& p : patterns)
    if (p == "layers" || p == "model.layers") return;
  fields.fail(kKey, fmt::format("is {}, which names no layers of the model", shown(value)),
              "its layers are called \"layers\"");
}

bool is_all_linear(std::string text) {
  std::ranges::transform(text, text.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text == "all-linear";
}

ModuleChoice parse_choice(const Fields& fields) {
  ModuleChoice choice;
  if (!fields.has("target_modules"))
    fields.fail("target_modules", "is missing", "it lists the projections that have an adapter");
  parse_names(fields, "target_modules", choice.targets, choice.target_pattern);
  if (is_all_linear(choice.target_pattern)) {
    choice.all_linear = true;
    choice.target_pattern.clear();
  }
  parse_names(fields, "exclude_modules", choice.excluded, choice.excluded_pattern);
  choice.layers = parse_layers(fields);
  if (!choice.layers.empty()) {
    check_layers_pattern(fields);
    if (fields.value("target_modules").is_string())
      fields.fail("layers_to_transform", "cannot be used with a target_modules that is not a list",
                  "PEFT refuses it too");
  }
  return choice;
}

std::vector<std::string> parse_saved(const Fields& fields) {
  constexpr std::string_view kKey = "modules_to_save";
  if (!fields.has(kKey)) return {};
  if (!fields.value(kKey).is_array())
    fields.fail(kKey, fmt::format("must be a list, not {}", shown(fields.value(kKey))));
  std::vector<std::string> saved = texts(fields, kKey);
  for (const std::string& name : saved)
    if (!std::ranges::all_of(
            name, [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '.'; }))
      fields.fail(kKey, fmt::format("holds \"{}\", which is not a module's name", name));
  return saved;
}

}  // namespace

double AdapterConfig::scale() const {
  const auto r = static_cast<double>(rank);
  return alpha / (rslora ? std::sqrt(r) : r);
}

AdapterConfig parse_adapter_config(const Json& json, const std::string& where,
                                   const ModelConfig& model) {
  const Fields fields(json, where);
  check_adapter_supported(fields);
  AdapterConfig config;
  // The defaults are PEFT's.
  config.rank = fields.integer_or("r", 8, 1, kMostRank);
  config.alpha = fields.number_or("lora_alpha", 8);
  config.rslora = fields.boolean_or("use_rslora", false);
  config.dropout = fields.number_or("lora_dropout", 0);
  if (config.dropout < 0 || config.dropout >= 1)
    fields.fail("lora_dropout",
                fmt::format("is {}; it must be at least 0 and below 1", config.dropout));
  config.also_train = parse_saved(fields);
  config.tie_weights = fields.boolean_or("ensure_weight_tying", false);
  config.base_model = fields.text_or("base_model_name_or_path", "");
  ModuleChoice choice = parse_choice(fields);
  choice.saved = config.also_train;
  choose_modules(choice, model, where, config);
  return config;
}

AdapterConfig read_adapter_config(const std::filesystem::path& directory,
                                  const ModelConfig& model) {
  const std::filesystem::path path = directory / kAdapterConfig;
  if (!std::filesystem::exists(path))
    throw Error(fmt::format("{}: no such file", path.string()),
                "an adapter is a directory that PEFT or longstride saved, with adapter_config.json "
                "and adapter_model.safetensors");
  return parse_adapter_config(read_json(path), path.string(), model);
}

Json adapter_config_json(const AdapterConfig& c) {
  Json json = {{"alpha_pattern", Json::object()},
               {"auto_mapping", nullptr},
               {"base_model_name_or_path", nullptr},
               {"bias", "none"},
               {"fan_in_fan_out", false},
               {"inference_mode", true},
               {"init_lora_weights", true},
               {"layer_replication", nullptr},
               {"layers_pattern", nullptr},
               {"layers_to_transform", nullptr},
               {"loftq_config", Json::object()},
               {"lora_alpha", c.alpha},
               {"lora_dropout", c.dropout},
               {"megatron_config", nullptr},
               {"megatron_core", "megatron.core"},
               {"modules_to_save", nullptr},
               {"peft_type", "LORA"},
               {"r", c.rank},
               {"rank_pattern", Json::object()},
               {"revision", nullptr},
               {"target_modules", c.targets},
               {"task_type", "CAUSAL_LM"},
               {"use_dora", false},
               {"use_rslora", c.rslora}};
  if (!c.base_model.empty()) json["base_model_name_or_path"] = c.base_model;
  // PEFT writes whole values of alpha as whole numbers.
  if (c.alpha == std::trunc(c.alpha) && std::abs(c.alpha) < 1e15)
    json["lora_alpha"] = static_cast<std::int64_t>(c.alpha);
  if (!c.layers.empty()) json["layers_to_transform"] = c.layers;
  if (!c.also_train.empty()) json["modules_to_save"] = c.also_train;
  // Unknown to older versions, which refuse unknown fields: only where it matters.
  if (c.tie_weights) json["ensure_weight_tying"] = true;
  return json;
}

}  // namespace longstride
