// What the picture of a memory map says in words. Only for the files of memory_map_svg.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/memory_map.h"

namespace longstride::svg {

std::string bytes_text(std::int64_t bytes);

// Of all lanes together.
std::int64_t reserved(const std::vector<MapLane>& lanes);

// What a lane holds, of which it shows at most so many bytes.
std::string lane_text(const MapLane& lane, std::int64_t most);

// Below the title: how large the step is.
std::string subtitle(const MemoryMap& map);

// How to read the picture; says nothing about what this map does not have.
std::string caption(const MemoryMap& map);

// How much of the workspace an episode takes.
std::string close_up_text(const MapCloseUp& close_up);

}  // namespace longstride::svg
