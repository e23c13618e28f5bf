#include "tests/where.h"

namespace longstride {

std::filesystem::path source_directory() { return LS_SOURCE_DIR; }
std::filesystem::path program_path() { return LS_BINARY; }
std::filesystem::path nccl_twin_path() { return LS_NCCL_TWIN; }

}  // namespace longstride
