#include "data/data_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

namespace longstride {
namespace {

std::string reason(int error) { return std::generic_category().message(error); }

}  // namespace

FileChanged changed_in_use(const std::filesystem::path& path) {
  return FileChanged(
      fmt::format("{} has changed while it was in use", path.string()),
      "put it back as it was and go on with --resume; leave the data alone during a run");
}

DataFile::DataFile(const std::filesystem::path& path) : path_(path) {
  // Opening a pipe must fail, not block.
  fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd_ < 0)
    throw Error(fmt::format("cannot open {}: {}", path.string(), reason(errno)),
                "check the path and its permissions");
  struct stat info {};
  if (::fstat(fd_, &info) != 0 || !S_ISREG(info.st_mode)) {
    ::close(std::exchange(fd_, -1));
    throw Error(fmt::format("{}: not a regular file", path.string()),
                "name a file, not a directory or a device");
  }
  size_ = info.st_size;
}

DataFile::DataFile(DataFile&& other) noexcept { *this = std::move(other); }

DataFile& DataFile::operator=(DataFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(size_, other.size_);
  return *this;
}

DataFile::~DataFile() {
  if (fd_ >= 0) ::close(fd_);
}

void DataFile::read(std::int64_t offset, std::span<std::byte> out) const {
  LS_CHECK(offset >= 0 && offset + std::ssize(out) <= size_, "bytes {}+{} of {}", offset,
           out.size(), size_);
  while (!out.empty()) {
    const ssize_t n = ::pread(fd_, out.data(), out.size(), offset);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0)
      throw Error(fmt::format("cannot read {}: {}", path_.string(), reason(errno)),
                  "check the disk that holds it");
    if (n == 0) throw changed_in_use(path_);
    out = out.subspan(static_cast<std::size_t>(n));
    offset += n;
  }
}

}  // namespace longstride
