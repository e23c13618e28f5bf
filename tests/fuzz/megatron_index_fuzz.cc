// Any bytes as the index of a Megatron dataset: an Error, or documents that cover its tokens.
//
// The file lives in memory, and is opened by its name under /proc.
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "base/error.h"
#include "data/megatron.h"

namespace {

void check(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const int fd = ::memfd_create("fuzz", MFD_CLOEXEC);
  check(fd >= 0 && ::ftruncate(fd, static_cast<off_t>(size)) == 0);
  check(::pwrite(fd, data, size, 0) == static_cast<ssize_t>(size));
  try {
    const longstride::MegatronIndex index =
        longstride::read_megatron_index(longstride::DataFile(fmt::format("/proc/self/fd/{}", fd)));
    check(index.tokens >= 0 && longstride::bytes_of(index.type) >= 1);
    check(index.starts.empty() == (index.tokens == 0));
    if (!index.starts.empty()) check(index.starts.front() == 0);
    for (std::size_t i = 0; i < index.starts.size(); ++i)
      check(index.starts[i] < (i + 1 < index.starts.size() ? index.starts[i + 1] : index.tokens));
  } catch (const longstride::Error&) {
  }
  return 0;
}
