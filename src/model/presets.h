// Model shapes by name, for planning, benchmarks, tests and demos. Every preset is a config.json
// that transformers accepts, so that a preset with random weights can be written out as a model
// directory.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/config.h"

namespace longstride {

// With `window` > 0 every layer has that window. Throws Error for an unknown name, listing the
// known ones with the nearest as the hint, and if the architecture has no windows.
ModelConfig find_preset(std::string_view name, std::int64_t window = 0);

std::vector<std::string> preset_names();

}  // namespace longstride
