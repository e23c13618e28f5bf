// Settings with a value per layer: lists of words, each with "*N" for N layers, that are repeated
// if they are shorter than the model.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace longstride {

// One word per layer. `name` is how messages name the setting, `words` what its entries are. Throws
// Error if the list does not fit the model. An empty list stays empty.
std::vector<std::string> words_of_layers(const std::vector<std::string>& pattern,
                                         const std::string& name, const std::string& words,
                                         std::int64_t layers);

}  // namespace longstride
