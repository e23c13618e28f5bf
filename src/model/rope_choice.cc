#include "model/rope_choice.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "model/config_rope.h"

namespace longstride {
namespace {

constexpr const char* kOriginal = "original_max_position_embeddings";

void check_limits(const RopeChoice& choice, const RopeNames& names) {
  const auto refuse = [](const std::string& name, auto value, const char* limit) {
    throw Error(fmt::format("{} is {}; it must be {}", name, value, limit),
                "leave it out to keep the model's own");
  };
  if (choice.theta && !(std::isfinite(*choice.theta) && *choice.theta > 1))
    refuse(names.theta, *choice.theta, "over 1");
  if (choice.factor && !(std::isfinite(*choice.factor) && *choice.factor >= 1))
    refuse(names.factor, *choice.factor, "at least 1");
  if (choice.original_positions && *choice.original_positions < 1)
    refuse(names.original_positions, *choice.original_positions, "at least 1");
}

RopeType chosen_type(const RopeChoice& choice, const RopeNames& names, const ModelConfig& config) {
  if (choice.type.empty()) return config.rope.type;
  const std::optional<RopeType> type = rope_type_named(choice.type);
  if (type && !has_rope_type(config.architecture, *type))
    throw Error(fmt::format("{} is {}, which transformers does not know for {} models", names.type,
                            choice.type, name_of(config.architecture)),
                fmt::format("extend the context by {} instead", names.theta));
  if (type) return *type;
  throw Error(fmt::format("{} is \"{}\", which is not supported", names.type, choice.type),
              "supported are default, linear, llama3 and yarn");
}

bool has_original(RopeType type) { return type == RopeType::kLlama3 || type == RopeType::kYarn; }

// A setting that the type does not use would be ignored.
void check_used(const RopeChoice& choice, const RopeNames& names, RopeType type) {
  const auto refuse = [&](const std::string& name, auto value, const char* fitting) {
    throw Error(choice.type.empty()
                    ? fmt::format("{} is {}, but the model's rope type is {}, which has none", name,
                                  value, name_of(type))
                    : fmt::format("{} is {}, but {} is {}, which has none", name, value, names.type,
                                  name_of(type)),
                fmt::format("set {} to {}, or leave {} out", names.type, fitting, name));
  };
  if (choice.factor && type == RopeType::kDefault)
    refuse(names.factor, *choice.factor, "yarn, linear or llama3");
  if (choice.original_positions && !has_original(type))
    refuse(names.original_positions, *choice.original_positions, "yarn or llama3");
}

// The model's context before any scaling, as far as its config.json says.
std::int64_t own_original(const ModelConfig& config, RopeType type) {
  if (has_original(config.rope.type)) return config.rope.original_positions;
  if (type == RopeType::kLinear && config.rope.type == type)
    return std::max<std::int64_t>(
        1, std::llround(static_cast<double>(config.max_positions) / config.rope.factor));
  for (const Json* object : {&config.raw, &rope_object(config.raw)})
    if (const auto it = object->find(kOriginal);
        it != object->end() && it->is_number_integer() && it->get<std::int64_t>() >= 1)
      return it->get<std::int64_t>();
  return config.max_positions;
}

double chosen_factor(const RopeChoice& choice, const RopeNames& names, RopeType type,
                     const RopeConfig& own, double needed) {
  if (choice.factor) return *choice.factor;
  if (own.type != RopeType::kDefault) return own.factor;
  throw Error(fmt::format("{} is {}, which needs a factor, and neither {} nor the model gives one",
                          names.type, name_of(type), names.factor),
              fmt::format("set {} to {}, for instance: how many times longer the context becomes",
                          names.factor, std::max(2.0, std::ceil(needed))));
}

// Leaves a number that is equal as it is written.
template <class T>
void set_number(Json& object, const char* key, T value) {
  const auto it = object.find(key);
  if (it == object.end() || !it->is_number() || it->get<T>() != value) object[key] = value;
}

// What stands in rope_scaling or rope_parameters, without rope_theta unless the source has it.
Json rope_object_of(RopeType type, const RopeConfig& own, const Json& source) {
  if (type == own.type && !source.empty()) return source;
  Json object = {{"rope_type", name_of(type)}};
  if (type == RopeType::kLlama3) {
    object["low_freq_factor"] = RopeConfig{}.low_freq_factor;
    object["high_freq_factor"] = RopeConfig{}.high_freq_factor;
  }
  return object;
}

// Both styles, so that every version of transformers reads the same.
void write_rope(const RopeConfig& rope, const RopeConfig& own, Json& raw) {
  const Json source = rope_object(raw);
  const bool of_layers = has_own_of_layers(raw);
  const bool newer = raw.contains("rope_parameters") && raw["rope_parameters"].is_object() &&
                     !raw["rope_parameters"].empty();
  Json object = rope_object_of(rope.type, own, source);
  if (newer || source.contains("rope_theta")) set_number(object, "rope_theta", rope.theta);
  if (!of_layers) set_number(raw, "rope_theta", rope.theta);
  if (rope.type != RopeType::kDefault) set_number(object, "factor", rope.factor);
  if (has_original(rope.type)) {
    // Where it also stands outside, that one wins.
    set_number(object, kOriginal, rope.original_positions);
    if (raw.contains(kOriginal)) set_number(raw, kOriginal, rope.original_positions);
  }
  if (of_layers) {
    raw["rope_parameters"]["full_attention"] = object;
    return;
  }
  if (newer) raw["rope_parameters"] = object;
  if (rope.type != RopeType::kDefault)
    raw["rope_scaling"] = object;
  else if (raw.contains("rope_scaling"))
    raw["rope_scaling"] = nullptr;
}

// `factor` times `positions`, within what a config.json may say.
std::int64_t scaled_positions(double factor, std::int64_t positions) {
  constexpr std::int64_t kMost = std::int64_t{1} << 62;
  const double product = factor * static_cast<double>(positions);
  return product < static_cast<double>(kMost) ? static_cast<std::int64_t>(product) : kMost;
}

}  // namespace

const RopeNames& rope_keys() {
  static const RopeNames names{"model.rope_type", "model.rope_theta", "model.rope_factor",
                               "model.rope_original_positions"};
  return names;
}

const RopeNames& rope_options() {
  static const RopeNames names{"--rope-type", "--rope-theta", "--rope-factor",
                               "--rope-original-positions"};
  return names;
}

std::int64_t apply_rope(const RopeChoice& choice, const RopeNames& names, std::int64_t context,
                        const std::string& where, ModelConfig& config) {
  if (!choice.any()) return config.max_positions;
  const RopeConfig own = config.rope;
  check_limits(choice, names);
  RopeConfig rope;
  rope.type = chosen_type(choice, names, config);
  check_used(choice, names, rope.type);
  rope.theta = choice.theta.value_or(own.theta);
  rope.original_positions = choice.original_positions.value_or(own_original(config, rope.type));
  std::int64_t made_for = own.type != rope.type && has_original(own.type) ? rope.original_positions
                                                                          : config.max_positions;
  if (rope.type != RopeType::kDefault) {
    const double needed =
        static_cast<double>(context) / static_cast<double>(rope.original_positions);
    rope.factor = chosen_factor(choice, names, rope.type, own, needed);
    made_for = std::max(made_for, scaled_positions(rope.factor, rope.original_positions));
  }
  // How far another theta reaches is the user's to say.
  if (choice.theta) made_for = std::max(made_for, context);

  write_rope(rope, own, config.raw);
  config.max_positions = std::max({config.max_positions, context, made_for});
  set_number(config.raw, "max_position_embeddings", config.max_positions);
  config.rope = parse_rope(Fields(config.raw, where), config.architecture, config.max_positions);
  return made_for;
}

}  // namespace longstride
