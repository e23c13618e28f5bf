// Which parameters a save writes, and under which names: all of a model, or with adapters only what
// is trained, as PEFT names it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/parameter_specs.h"

namespace longstride {

struct SavedTensor {
  std::string name;            // in the file
  std::int64_t parameter = 0;  // index in the list
};
std::vector<SavedTensor> saved_tensors(const std::vector<ParameterSpec>& specs);

// Of all of them.
std::int64_t saved_bytes(const std::vector<ParameterSpec>& specs);

bool has_adapters(const std::vector<ParameterSpec>& specs);

}  // namespace longstride
