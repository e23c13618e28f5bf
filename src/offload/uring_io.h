// Requests by io_uring: the kernel has them all at once, and no thread sits in a call for each.
#pragma once

#include <memory>

#include "offload/block_io.h"

namespace longstride {

// `file` is direct. Null where the kernel or a container refuses io_uring; `error` is its number.
std::unique_ptr<BlockIo> make_uring_io(std::shared_ptr<OffloadFile> file, int* error);

}  // namespace longstride
