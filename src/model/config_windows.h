// Which layers of a config.json attend to a window.
#pragma once

#include <cstdint>
#include <vector>

#include "model/config.h"
#include "model/config_fields.h"

namespace longstride {

// ModelConfig::windows, as transformers decides it, defaults included. Throws Error for fields that
// contradict each other.
std::vector<std::int64_t> parse_windows(const Fields& fields, Architecture architecture,
                                        std::int64_t layers);

}  // namespace longstride
