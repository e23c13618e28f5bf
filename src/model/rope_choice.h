// The user's choice of rotary positions in place of a model's own, to extend its context.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "model/config.h"

namespace longstride {

// What is not given stays the model's.
struct RopeChoice {
  std::string type = {};  // "default", "linear", "llama3" or "yarn"; empty: not given
  std::optional<double> theta = {}, factor = {};
  std::optional<std::int64_t> original_positions = {};

  bool any() const { return !type.empty() || theta || factor || original_positions; }
};

// How messages name the settings: "model.rope_factor", "--rope-factor".
struct RopeNames {
  std::string type, theta, factor, original_positions;
};
// Of the keys in [model], and of the options of commands.
const RopeNames& rope_keys();
const RopeNames& rope_options();

// Changes config.rope, and in config.raw the fields that state it, so that a saved config.json says
// what was trained: rope_theta, rope_scaling, rope_parameters where the source has it, and
// max_position_embeddings, which then covers `context` and never falls. If the type stays, its fine
// points (beta_fast, low_freq_factor, ...) do; a new type has transformers' defaults. Without a
// choice nothing changes.
//
// Returns how many positions the model is made for with these settings. `where` is the config's
// source, for messages. Throws Error that names the setting: out of range, without effect, or a
// type without a factor.
std::int64_t apply_rope(const RopeChoice& choice, const RopeNames& names, std::int64_t context,
                        const std::string& where, ModelConfig& config);

}  // namespace longstride
