#include "model/config_rope.h"

#include <array>

#include "base/error.h"
#include "model/config_support.h"

namespace longstride {
namespace {

constexpr std::int64_t kMostPositions = std::int64_t{1} << 62;

constexpr const char *kFullLayers = "full_attention", *kLocalLayers = "sliding_attention";

constexpr auto kKnown = std::to_array<std::string_view>(
    {"rope_type", "type", "rope_theta", "partial_rotary_factor", "factor",
     "original_max_position_embeddings", "attention_factor", "beta_fast", "beta_slow", "mscale",
     "mscale_all_dim", "truncate", "low_freq_factor", "high_freq_factor", "finetuned"});

RopeType parse_type(const Fields& fields, Architecture architecture) {
  const std::string_view key = fields.has("rope_type") ? "rope_type" : "type";
  const std::string type = fields.text_or(key, "default");
  const std::optional<RopeType> known = rope_type_named(type);
  if (known && has_rope_type(architecture, *known)) return *known;
  if (architecture == Architecture::kPhi3)
    fields.fail(key, fmt::format("is \"{}\", which is not supported in phi3 models", type),
                "longrope, with frequencies that depend on a sequence's length, is not computed; "
                "Phi-4 and the Phi-3 models of 4K need none");
  fields.fail(key, fmt::format("is \"{}\", which is not supported", type),
              "supported are default, linear, llama3 and yarn");
}

void parse_yarn(const Fields& fields, std::int64_t max_positions, RopeConfig& rope) {
  // Null takes the ratio of the two lengths; omitting the key is an error in transformers as well.
  rope.factor =
      fields.mentions("factor") && !fields.has("factor")
          ? static_cast<double>(max_positions) / static_cast<double>(rope.original_positions)
          : fields.number_above("factor", 0.0);
  const auto optional = [&](std::string_view key) -> std::optional<double> {
    if (!fields.has(key)) return std::nullopt;
    return fields.number(key);
  };
  // Zero means "not given" for all of these except attention_factor.
  rope.beta_fast = fields.number_or("beta_fast", 0.0);
  if (rope.beta_fast == 0.0) rope.beta_fast = 32.0;
  rope.beta_slow = fields.number_or("beta_slow", 0.0);
  if (rope.beta_slow == 0.0) rope.beta_slow = 1.0;
  if (rope.beta_fast < 0.0) fields.fail("beta_fast", "must be above 0");
  if (rope.beta_slow < 0.0) fields.fail("beta_slow", "must be above 0");
  if (rope.beta_fast < rope.beta_slow)
    fields.fail("beta_fast",
                fmt::format("is {}, below beta_slow, which is {}", rope.beta_fast, rope.beta_slow));
  rope.truncate = fields.boolean_or("truncate", true);
  rope.mscale = optional("mscale");
  rope.mscale_all_dim = optional("mscale_all_dim");
  if (fields.has("attention_factor"))
    rope.attention_factor = fields.number_above("attention_factor", 0.0);
}

void parse_llama3(const Fields& fields, RopeConfig& rope) {
  rope.factor = fields.number_above("factor", 0.0);
  rope.low_freq_factor = fields.number_above("low_freq_factor", 0.0);
  rope.high_freq_factor = fields.number_above("high_freq_factor", 0.0);
  if (rope.high_freq_factor <= rope.low_freq_factor)
    fields.fail("high_freq_factor",
                fmt::format("is {}; it must be above low_freq_factor, which is {}",
                            rope.high_freq_factor, rope.low_freq_factor));
}

// Null and empty count as absent.
bool is_given(const Json& config, const char* key) {
  const auto it = config.find(key);
  return it != config.end() && !it->is_null() && *it != Json::object();
}

const char* rope_key(const Json& config) {
  return is_given(config, "rope_scaling") ? "rope_scaling" : "rope_parameters";
}

const Json& given_object(const Json& config) {
  static const Json kNothing = Json::object();
  const char* key = rope_key(config);
  return is_given(config, key) ? config.at(key) : kNothing;
}

// Where theta stands outside of the object, and what it is if it is not given.
struct Theta {
  std::string_view key = "rope_theta";
  double fallback = RopeConfig{}.theta;
};

// `fields` are those of the whole config.json, `inner` those of the object.
RopeConfig parse_object(const Fields& fields, const Fields& inner, Architecture architecture,
                        std::int64_t max_positions, const Theta& theta) {
  RopeConfig rope;
  if (inner.number_or("partial_rotary_factor", 1.0) != 1.0)
    inner.fail("partial_rotary_factor", "is not 1, but only full rotary positions are supported");
  if (inner.has("mrope_section"))
    inner.fail("mrope_section", "is given, but positions of several axes are not supported");

  rope.theta = inner.has("rope_theta") ? inner.number_above("rope_theta", 1.0)
                                       : fields.number_above_or(theta.key, theta.fallback, 1.0);
  rope.type = parse_type(inner, architecture);
  if (rope.type == RopeType::kLlama3 || rope.type == RopeType::kYarn) {
    // As in transformers, the one outside wins.
    constexpr std::string_view kOriginal = "original_max_position_embeddings";
    rope.original_positions = fields.has(kOriginal)
                                  ? fields.integer(kOriginal, 1, kMostPositions)
                                  : inner.integer_or(kOriginal, max_positions, 1, kMostPositions);
  }
  if (rope.type == RopeType::kLinear) rope.factor = inner.number_above("factor", 0.0);
  if (rope.type == RopeType::kLlama3) parse_llama3(inner, rope);
  if (rope.type == RopeType::kYarn) parse_yarn(inner, max_positions, rope);
  warn_unknown(inner, kKnown);
  return rope;
}

// Gemma 3: one of the two objects in rope_parameters, or the one of the old style.
RopeConfig parse_of_layers(const Fields& fields, const char* layers, const Json& in_old_style,
                           std::int64_t max_positions, const Theta& theta) {
  const Json& config = fields.object();
  if (!is_given(config, "rope_parameters"))
    return parse_object(fields, {in_old_style, fields.where(), "rope_scaling."},
                        Architecture::kGemma3, max_positions, theta);
  const Fields both(config.at("rope_parameters"), fields.where(), "rope_parameters.");
  warn_unknown(both, std::to_array<std::string_view>({kFullLayers, kLocalLayers}));
  return parse_object(
      fields, {both.value(layers), fields.where(), fmt::format("rope_parameters.{}.", layers)},
      Architecture::kGemma3, max_positions, theta);
}

}  // namespace

std::optional<RopeType> rope_type_named(std::string_view name) {
  for (const RopeType t :
       {RopeType::kDefault, RopeType::kLinear, RopeType::kLlama3, RopeType::kYarn})
    if (name == name_of(t)) return t;
  return std::nullopt;
}

const Json& rope_object(const Json& config) {
  const Json& object = given_object(config);
  return has_own_of_layers(config) ? object.at(kFullLayers) : object;
}

bool has_own_of_layers(const Json& config) {
  const Json& object = given_object(config);
  return object.is_object() && is_given(object, kFullLayers);
}

bool has_rope_type(Architecture architecture, RopeType type) {
  return architecture != Architecture::kPhi3 || type == RopeType::kDefault;
}

RopeConfig parse_rope(const Fields& fields, Architecture architecture, std::int64_t max_positions) {
  const Json& config = fields.object();
  const bool of_layers = architecture == Architecture::kGemma3;
  if (is_given(config, "rope_scaling") && is_given(config, "rope_parameters") &&
      (of_layers || fields.value("rope_scaling") != fields.value("rope_parameters")))
    fields.fail("rope_scaling", "and rope_parameters are both given and differ",
                "remove one of them");
  if (of_layers)
    return parse_of_layers(fields, kFullLayers, given_object(config), max_positions,
                           {.fallback = 1e6});
  const Fields inner(given_object(config), fields.where(), std::string(rope_key(config)) + ".");
  for (const std::string_view nested : {kFullLayers, kLocalLayers})
    if (inner.has(nested))
      inner.fail(nested, "gives a kind of layer its own rotary positions, which is not supported");
  return parse_object(fields, inner, architecture, max_positions, {});
}

RopeConfig parse_local_rope(const Fields& fields, std::int64_t max_positions) {
  static const Json kNothing = Json::object();
  return parse_of_layers(fields, kLocalLayers, kNothing, max_positions,
                         {.key = "rope_local_base_freq", .fallback = 1e4});
}

}  // namespace longstride
