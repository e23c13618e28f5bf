// The PTX files of a build: finds kernels by name and decodes those that are launched.
#pragma once

#include <string>

#include "tests/cuda_twin/kernel.h"

namespace longstride::twin {

// Decoded at the first call. Names of unnamed namespaces may differ in their hashes. Throws Fault
// if there is no such kernel or it has an instruction that the twin does not know. Not thread-safe.
const Kernel& kernel_named(const std::string& name);

}  // namespace longstride::twin
