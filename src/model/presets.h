// Model shapes by name, for planning, benchmarks, tests and demos. Every preset is a config.json
// that transformers accepts, so that a preset with random weights can be written out as a model
// directory.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/config.h"

namespace longstride {

// Throws Error that lists the known names, with the nearest one as the hint.
ModelConfig find_preset(std::string_view name);

std::vector<std::string> preset_names();

}  // namespace longstride
