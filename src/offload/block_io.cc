#include "offload/block_io.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "offload/thread_io.h"
#include "offload/uring_io.h"

namespace longstride {
namespace {

// Writes and reads a few bytes, as some refusals come only with the first request. Returns 0 or
// errno.
int try_out(BlockIo& io) {
  const AlignedMemory memory = aligned_memory(kDirectAlignment);
  std::memset(memory.get(), 0, kDirectAlignment);
  for (const bool write : {true, false}) {
    io.submit({.to = write ? nullptr : memory.get(),
               .from = write ? memory.get() : nullptr,
               .bytes = kDirectAlignment});
    std::vector<BlockIo::Result> results;
    while (results.empty()) io.wait(results);
    if (results[0].moved < 0) return static_cast<int>(-results[0].moved);
    if (results[0].moved < kDirectAlignment) return EIO;
  }
  return 0;
}

std::string reason(const char* what, int error) {
  return fmt::format("{}: {}", what, std::strerror(error));  // NOLINT(concurrency-mt-unsafe)
}

}  // namespace

std::unique_ptr<BlockIo> make_block_io(IoKind kind, std::shared_ptr<OffloadFile> file,
                                       std::int64_t block_bytes, std::string* why_not) {
  if (kind == IoKind::kThreadsBuffered) {
    const int error = file->set_direct(false);
    LS_CHECK(error == 0, "buffered I/O is refused: error {}", error);
    return make_thread_io(std::move(file), false);
  }
  if (block_bytes % kDirectAlignment != 0) {
    *why_not =
        fmt::format("blocks of {} bytes are no multiple of {}", block_bytes, kDirectAlignment);
    return nullptr;
  }
  if (const int error = file->set_direct(true); error != 0) {
    *why_not = reason("O_DIRECT", error);
    return nullptr;
  }
  int error = 0;
  std::unique_ptr<BlockIo> io = kind == IoKind::kUringDirect
                                    ? make_uring_io(std::move(file), &error)
                                    : make_thread_io(std::move(file), true);
  if (io != nullptr) error = try_out(*io);
  if (error == 0) return io;
  *why_not = reason(kind == IoKind::kUringDirect ? "io_uring" : "O_DIRECT", error);
  return nullptr;
}

OpenedIo open_block_io(const std::shared_ptr<OffloadFile>& file, std::int64_t block_bytes) {
  OpenedIo opened;
  for (int kind = 0; kind < kIoKinds && opened.io == nullptr; ++kind) {
    std::string why_not;
    opened.io = make_block_io(static_cast<IoKind>(kind), file, block_bytes, &why_not);
    if (opened.io != nullptr || why_not == opened.why_not_better) continue;
    if (!opened.why_not_better.empty()) opened.why_not_better += "; ";
    opened.why_not_better += why_not;
  }
  return opened;
}

}  // namespace longstride
