// The rotary part of a config.json, in both styles: rope_theta + rope_scaling, and rope_parameters
// (transformers 5).
#pragma once

#include <optional>
#include <string_view>

#include "model/config.h"
#include "model/config_fields.h"

namespace longstride {

// The type of that name; nothing for another.
std::optional<RopeType> rope_type_named(std::string_view name);

// The object that states them in a config.json, in either style; empty if there is none. Where
// kinds of layers have their own (Gemma 3), it is that of layers without a window.
const Json& rope_object(const Json& config);
// Whether kinds of layers have their own.
bool has_own_of_layers(const Json& config);

// `fields` are those of the whole config.json.
RopeConfig parse_rope(const Fields& fields, Architecture architecture, std::int64_t max_positions);

// Of layers with a window in gemma3_text models.
RopeConfig parse_local_rope(const Fields& fields, std::int64_t max_positions);

// Whether transformers knows the type for these models: phi3 has a list of its own, in which yarn
// means longrope.
bool has_rope_type(Architecture architecture, RopeType type);

}  // namespace longstride
