// Asynchronous file I/O with many requests in flight, driven by Transfers. Tests wrap a real
// BlockIo in one that fails.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "offload/offload_file.h"

namespace longstride {

// Not thread-safe: one thread owns it; only wake() may be called from any thread.
class BlockIo {
 public:
  static constexpr int kMostRequests = 32;  // in flight at once

  BlockIo() = default;
  BlockIo(const BlockIo&) = delete;
  BlockIo& operator=(const BlockIo&) = delete;
  // Once this has returned, the memory of requests is not accessed any more.
  virtual ~BlockIo() = default;

  struct Request {
    std::byte* to = nullptr;          // set in a read
    const std::byte* from = nullptr;  // set in a write
    std::int64_t bytes = 0, offset = 0;
    std::uint64_t tag = 0;  // returned in the result
  };
  struct Result {
    std::uint64_t tag = 0;
    std::int64_t moved = 0;  // bytes, possibly fewer than requested; or -errno
  };
  // Starts a request, in the next wait() at the latest. Requests complete in any order.
  virtual void submit(const Request& request) = 0;
  // Blocks until a request completes or wake() is called; a wake() since the last wait counts.
  // Replaces `results`, possibly by nothing.
  virtual void wait(std::vector<Result>& results) = 0;
  virtual void wake() = 0;

  // Memory address, length and offset of a request must be multiples of it.
  virtual std::int64_t alignment() const = 0;
  virtual std::string description() const = 0;  // "io_uring, direct"
};

// In the order in which they are tried.
enum class IoKind : std::uint8_t { kUringDirect, kThreadsDirect, kThreadsBuffered };
inline constexpr int kIoKinds = 3;
inline constexpr std::int64_t kDirectAlignment = 4096;

// Null if the kernel, a container, the file system or the block size rules that kind out; `why_not`
// then says why. kThreadsBuffered always works. Tests a direct kind with a request, which
// overwrites the start of the file.
std::unique_ptr<BlockIo> make_block_io(IoKind kind, std::shared_ptr<OffloadFile> file,
                                       std::int64_t block_bytes, std::string* why_not);
// The first kind that works, and why those before it did not, for logs.
struct OpenedIo {
  std::unique_ptr<BlockIo> io;
  std::string why_not_better;  // "" with the best
};
OpenedIo open_block_io(const std::shared_ptr<OffloadFile>& file, std::int64_t block_bytes);

// Memory aligned to kDirectAlignment.
struct FreeAligned {
  void operator()(std::byte* memory) const { ::operator delete[](memory, kAlign); }
  static constexpr std::align_val_t kAlign{kDirectAlignment};
};
using AlignedMemory = std::unique_ptr<std::byte[], FreeAligned>;
inline AlignedMemory aligned_memory(std::int64_t bytes) {
  return AlignedMemory(new (FreeAligned::kAlign) std::byte[static_cast<std::size_t>(bytes)]);
}

}  // namespace longstride
