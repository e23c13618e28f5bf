// The rotary part of a config.json, in both styles: rope_theta + rope_scaling, and rope_parameters
// (transformers 5).
#pragma once

#include "model/config.h"
#include "model/config_fields.h"

namespace longstride {

// `fields` are those of the whole config.json.
RopeConfig parse_rope(const Fields& fields, std::int64_t max_positions);

}  // namespace longstride
