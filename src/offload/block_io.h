// Reading and writing a file, many requests under way at once: what Transfers drives. Tests put a
// BlockIo of their own around a real one, to make it fail.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "offload/offload_file.h"

namespace longstride {

// For one thread, but wake() from any.
class BlockIo {
 public:
  static constexpr int kMostRequests = 32;  // under way at once

  BlockIo() = default;
  BlockIo(const BlockIo&) = delete;
  BlockIo& operator=(const BlockIo&) = delete;
  // Memory of requests is not touched any more once this has returned.
  virtual ~BlockIo() = default;

  struct Request {
    std::byte* to = nullptr;  // a read; or
    const std::byte* from = nullptr;
    std::int64_t bytes = 0, offset = 0;
    std::uint64_t tag = 0;  // comes back in the result
  };
  struct Result {
    std::uint64_t tag = 0;
    std::int64_t moved = 0;  // bytes, perhaps fewer than asked for; or -errno
  };
  // Begins at the latest in the next wait(). In any order among themselves.
  virtual void submit(const Request& request) = 0;
  // Blocks until a request has ended or wake() was called (since the last wait: it is not lost).
  // Replaces `results`, by none perhaps.
  virtual void wait(std::vector<Result>& results) = 0;
  virtual void wake() = 0;

  // Memory, length and offset of a request are multiples of it.
  virtual std::int64_t alignment() const = 0;
  virtual std::string description() const = 0;  // "io_uring, direct"
};

// In the order in which they are tried.
enum class IoKind : std::uint8_t { kUringDirect, kThreadsDirect, kThreadsBuffered };
inline constexpr int kIoKinds = 3;
inline constexpr std::int64_t kDirectAlignment = 4096;

// Null where the kernel, a container, the file system or the length of blocks forbids that kind;
// `why_not` says which. kThreadsBuffered always works. A direct kind has been tried out: the start
// of the file is overwritten.
std::unique_ptr<BlockIo> make_block_io(IoKind kind, std::shared_ptr<OffloadFile> file,
                                       std::int64_t block_bytes, std::string* why_not);
// The first kind that works, and for logs what the ones before it lacked.
struct OpenedIo {
  std::unique_ptr<BlockIo> io;
  std::string why_not_better;  // "" with the best
};
OpenedIo open_block_io(const std::shared_ptr<OffloadFile>& file, std::int64_t block_bytes);

// Memory that begins at a multiple of kDirectAlignment.
struct FreeAligned {
  void operator()(std::byte* memory) const { ::operator delete[](memory, kAlign); }
  static constexpr std::align_val_t kAlign{kDirectAlignment};
};
using AlignedMemory = std::unique_ptr<std::byte[], FreeAligned>;
inline AlignedMemory aligned_memory(std::int64_t bytes) {
  return AlignedMemory(new (FreeAligned::kAlign) std::byte[static_cast<std::size_t>(bytes)]);
}

}  // namespace longstride
