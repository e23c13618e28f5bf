#include "model/config_rope.h"

#include <array>

#include "base/error.h"
#include "model/config_support.h"

namespace longstride {
namespace {

constexpr std::int64_t kMostPositions = std::int64_t{1} << 62;

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

}  // namespace

std::optional<RopeType> rope_type_named(std::string_view name) {
  for (const RopeType t :
       {RopeType::kDefault, RopeType::kLinear, RopeType::kLlama3, RopeType::kYarn})
    if (name == name_of(t)) return t;
  return std::nullopt;
}

const Json& rope_object(const Json& config) {
  static const Json kNothing = Json::object();
  const char* key = rope_key(config);
  return is_given(config, key) ? config.at(key) : kNothing;
}

bool has_rope_type(Architecture architecture, RopeType type) {
  return architecture != Architecture::kPhi3 || type == RopeType::kDefault;
}

RopeConfig parse_rope(const Fields& fields, Architecture architecture, std::int64_t max_positions) {
  const Json& config = fields.object();
  if (is_given(config, "rope_scaling") && is_given(config, "rope_parameters") &&
      fields.value("rope_scaling") != fields.value("rope_parameters"))
    fields.fail("rope_scaling", "and rope_parameters are both given and differ",
                "remove one of them");

  RopeConfig rope;
  const Fields inner(rope_object(config), fields.where(), std::string(rope_key(config)) + ".");
  for (const std::string_view nested : {"full_attention", "sliding_attention"})
    if (inner.has(nested))
      inner.fail(nested, "gives a kind of layer its own rotary positions, which is not supported");
  if (inner.number_or("partial_rotary_factor", 1.0) != 1.0)
    inner.fail("partial_rotary_factor", "is not 1, but only full rotary positions are supported");
  if (inner.has("mrope_section"))
    inner.fail("mrope_section", "is given, but positions of several axes are not supported");

  rope.theta = inner.has("rope_theta") ? inner.number_above("rope_theta", 1.0)
                                       : fields.number_above_or("rope_theta", rope.theta, 1.0);
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

}  // namespace longstride
