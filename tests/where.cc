#include "tests/where.h"

namespace longstride {

std::filesystem::path source_directory() { return LS_SOURCE_DIR; }
std::filesystem::path program_path() { return LS_BINARY; }

}  // namespace longstride
