// The wire of MPI, through the plugin (comm/mpi/plugin.h).
#pragma once

#include <string>

#include "comm/wire.h"

namespace longstride::comm {

// Opens the plugin: $LONGSTRIDE_MPI, or liblongstride_mpi.so beside the program or in ../lib.
// Throws Error if it or MPI's own library is missing, or of another version. MPI itself is opened
// by the function that is returned, on the thread that calls it; `expected` is the number of ranks
// that the launcher has started, and MPI must know as many.
MakeWire open_mpi(int expected);
// The name and version of the library; after open_mpi.
std::string mpi_library();

}  // namespace longstride::comm
