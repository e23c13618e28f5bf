// Which parameters are quantized, and how.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/parameter_specs.h"

namespace longstride {

// One of a layer's seven matrices: q, k, v, o, gate, up, down.
bool is_projection(const ParameterSpec& spec);

// "nf4" or "int8"; nothing for another word.
std::optional<DType> format_of_word(std::string_view word);

// Gives every projection the format, except those that are stored in it already. Throws Error if
// one is stored in another; `key` names the setting there. They are no longer trained.
void quantize_projections(std::vector<ParameterSpec>& specs, DType format, const std::string& key);

// The word of the quantized parameters' format; empty if there are none.
std::string quantization_of(const std::vector<ParameterSpec>& specs);

// Throws Error that names the first quantized parameter that is trained.
void refuse_trained_codes(const std::vector<ParameterSpec>& specs);

}  // namespace longstride
