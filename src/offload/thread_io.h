// Requests by threads that block in pread or pwrite.
#pragma once

#include <memory>

#include "offload/block_io.h"

namespace longstride {

// `direct`: how the file was opened (OffloadFile::set_direct).
std::unique_ptr<BlockIo> make_thread_io(std::shared_ptr<OffloadFile> file, bool direct);

}  // namespace longstride
