// The paths of the sources and of the program that this build made. Only one file contains them, so
// that clones in other places share all others in the compiler's cache.
#pragma once

#include <filesystem>

namespace longstride {

std::filesystem::path source_directory();
std::filesystem::path program_path();
std::filesystem::path nccl_twin_path();  // tests/comm/nccl_twin

}  // namespace longstride
