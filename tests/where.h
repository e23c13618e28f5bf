// Where the sources and the program are that this build made. The paths are compiled into one file
// alone, so that clones in other places share all others in the compiler's cache.
#pragma once

#include <filesystem>

namespace longstride {

std::filesystem::path source_directory();
std::filesystem::path program_path();

}  // namespace longstride
