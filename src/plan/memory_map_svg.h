// Draws a memory map as a picture that stands alone: SVG without scripts, fonts or other files.
#pragma once

#include <string>

#include "plan/memory_map.h"

namespace longstride {

// Every picture begins with this, so that a program may recognise its own.
inline constexpr const char* kMemoryMapSvgBegin =
    "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"longstride-memory\"";

// From top to bottom: the phases of the step; the device, addresses over time, with its tenants;
// activations on their way, host memory and disk, bytes over time; the colours of tensors; how to
// read it; the workspace of one episode of each kind. What is drawn says in a tooltip what it is.
// Below 1.5 MB for any map of make_memory_map.
std::string to_svg(const MemoryMap& map);

}  // namespace longstride
