#include "pages/page_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "base/sizes.h"

namespace longstride {
namespace {

[[noreturn]] void fail(const std::filesystem::path& directory, const std::string& what, int error) {
  throw Error(fmt::format("{}: {}: {}", directory.string(), what,
                          std::strerror(error)),  // NOLINT(concurrency-mt-unsafe)
              "check the disk of memory.disk_path, or choose another directory; the run can be "
              "resumed from its last checkpoint");
}

}  // namespace

PageFile::PageFile(const std::filesystem::path& directory, std::int64_t bytes)
    : directory_(directory) {
  std::string name = (directory / ".longstride-pages-XXXXXX").string();
  file_ = ::mkstemp(name.data());
  if (file_ < 0)
    throw Error(fmt::format("memory.disk_path {} cannot be written: {}", directory.string(),
                            std::strerror(errno)),  // NOLINT(concurrency-mt-unsafe)
                "name a directory on a local disk that exists and is yours");
  ::unlink(name.c_str());
  if (const int error = ::posix_fallocate(file_, 0, bytes); error != 0) {
    ::close(file_);
    throw Error(fmt::format("memory.disk_path {}: no room for {} of pages: {}", directory.string(),
                            format_bytes(static_cast<double>(bytes)),
                            std::strerror(error)),  // NOLINT(concurrency-mt-unsafe)
                "free space there, choose another directory, or shorten training.context");
  }
}

PageFile::~PageFile() { ::close(file_); }

void PageFile::write(const std::byte* from, std::int64_t bytes, std::int64_t offset) {
  while (bytes > 0) {
    const ssize_t done = ::pwrite(file_, from, static_cast<std::size_t>(bytes), offset);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) fail(directory_, "pages could not be written", done == 0 ? ENOSPC : errno);
    from += done;
    offset += done;
    bytes -= done;
  }
}

void PageFile::read(std::byte* to, std::int64_t bytes, std::int64_t offset) {
  while (bytes > 0) {
    const ssize_t done = ::pread(file_, to, static_cast<std::size_t>(bytes), offset);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) fail(directory_, "pages could not be read back", done == 0 ? EIO : errno);
    to += done;
    offset += done;
    bytes -= done;
  }
}

}  // namespace longstride
