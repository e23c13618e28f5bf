// Requests by io_uring: the kernel has all of them at once, and no thread blocks per request.
#pragma once

#include <memory>

#include "offload/block_io.h"

namespace longstride {

// `file` must be direct. Null if the kernel or a container refuses io_uring; `error` is then errno.
std::unique_ptr<BlockIo> make_uring_io(std::shared_ptr<OffloadFile> file, int* error);

}  // namespace longstride
