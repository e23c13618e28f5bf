// What an instruction does, by its name.
#pragma once

#include <string>
#include <vector>

#include "tests/cuda_twin/kernel.h"

namespace longstride::twin {

struct Meaning {
  Handler run = nullptr;
  // Widths of the operands in order, results first; a repeated last one for vectors.
  std::vector<Width> results, sources;
};

// `name` split at its dots. A null handler if the twin does not know it.
Meaning arithmetic_of(const std::vector<std::string>& name);
Meaning conversion_of(const std::vector<std::string>& name);
// Loads and stores of `elements` values: to (or from) the registers, from[0] is the address (the
// values of a store follow it).
Handler memory_access_of(const std::vector<std::string>& name, int elements);
Meaning warp_operation_of(const std::vector<std::string>& name);

// The type among the parts of a name: the last one, as in "add.s32".
Width width_of_type(const std::string& type);

}  // namespace longstride::twin
