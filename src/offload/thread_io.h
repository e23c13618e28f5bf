// Requests by threads that each sit in a pread or pwrite.
#pragma once

#include <memory>

#include "offload/block_io.h"

namespace longstride {

// `direct`: what the file was set to.
std::unique_ptr<BlockIo> make_thread_io(std::shared_ptr<OffloadFile> file, bool direct);

}  // namespace longstride
