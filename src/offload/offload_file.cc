#include "offload/offload_file.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "base/sizes.h"
#include "base/system_calls.h"

namespace longstride {
namespace {

int make_nameless(const std::filesystem::path& directory) {
  const int file =
      retry_eintr([&] { return ::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600); });
  if (file >= 0) return file;
  // Not every file system has O_TMPFILE; if the directory is the problem, this fails as well.
  std::string name;
  const int named = retry_eintr([&] {
    name = (directory / ".longstride-pages-XXXXXX").string();
    return ::mkostemp(name.data(), O_CLOEXEC);
  });
  if (named >= 0) ::unlink(name.c_str());
  return named;
}

// Returns 0 or errno. Checks the free space first: posix_fallocate would fill the disk before it
// fails.
int reserve(int file, std::int64_t bytes) {
  struct statvfs room = {};
  if (::fstatvfs(file, &room) == 0 &&
      static_cast<double>(room.f_bfree) * static_cast<double>(room.f_frsize) <
          static_cast<double>(bytes))
    return ENOSPC;
  int error = 0;
  do error = ::posix_fallocate(file, 0, bytes);
  while (error == EINTR);
  return error;
}

std::string free_room(const std::filesystem::path& directory) {
  struct statvfs room = {};
  if (::statvfs(directory.c_str(), &room) != 0) return "";
  return ", " +
         format_bytes(static_cast<double>(room.f_bavail) * static_cast<double>(room.f_frsize)) +
         " are free";
}

}  // namespace

OffloadFile::OffloadFile(const std::filesystem::path& directory, std::int64_t bytes,
                         const std::string& what)
    : directory_(directory), file_(make_nameless(directory)) {
  if (file_ < 0)
    throw Error(fmt::format("memory.disk_path {} cannot be written: {}", directory.string(),
                            std::strerror(errno)),  // NOLINT(concurrency-mt-unsafe)
                "name a directory on a local disk that exists and is yours");
  if (const int error = reserve(file_, bytes); error != 0) {
    close_descriptor(file_);
    throw Error(fmt::format("memory.disk_path {}: no room for {} of {}{}: {}", directory.string(),
                            format_bytes(static_cast<double>(bytes)), what, free_room(directory),
                            std::strerror(error)),  // NOLINT(concurrency-mt-unsafe)
                "free space there, choose another directory, or allow less on it by memory.disk");
  }
}

OffloadFile::~OffloadFile() { close_descriptor(file_); }

int OffloadFile::set_direct(bool direct) const {
  const int flags = ::fcntl(file_, F_GETFL);
  if (flags < 0) return errno;
  const int wanted = direct ? flags | O_DIRECT : flags & ~O_DIRECT;
  return wanted == flags || ::fcntl(file_, F_SETFL, wanted) == 0 ? 0 : errno;
}

}  // namespace longstride
