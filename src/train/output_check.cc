#include "train/output_check.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <system_error>

#include "base/error.h"
#include "base/log.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;

std::string reason(int error) { return std::generic_category().message(error); }

// 0, or errno if no file can be created in the directory. An unnamed file leaves no trace.
int probe(const fs::path& directory) {
  int file = ::open(directory.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
  if (file < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL)) {
    std::string name = (directory / ".probe-XXXXXX").string();
    file = ::mkostemp(name.data(), O_CLOEXEC);
    if (file >= 0) ::unlink(name.c_str());
  }
  if (file < 0) return errno;
  ::close(file);
  return 0;
}

void check_checkpoints(const fs::path& directory) {
  const int error = probe(nearest_existing(directory));
  if (error == 0) return;
  std::error_code ignored;
  if (fs::exists(directory, ignored) && !fs::is_directory(directory, ignored))
    throw Error(fmt::format("{} is no directory", directory.string()),
                "choose another path as checkpoint.directory");
  throw Error(fmt::format("cannot {} directory {}: {}",
                          fs::exists(directory, ignored) ? "write in" : "create",
                          directory.string(), reason(error)),
              error == ENOTDIR
                  ? "a part of the path is a file, not a directory: choose another path"
                  : "check the permissions, or choose another directory by checkpoint.directory");
}

void check_metrics(const fs::path& path) {
  std::error_code ignored;
  int error = 0;
  if (fs::is_regular_file(path, ignored) || fs::is_directory(path, ignored)) {
    const int file = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
    error = file < 0 ? errno : 0;
    if (file >= 0) ::close(file);
  } else if (!fs::exists(path, ignored)) {
    error = probe(nearest_existing(fs::absolute(path).parent_path()));
  }
  if (error != 0)
    throw Error(fmt::format("cannot write metrics file {}: {}", path.string(), reason(error)),
                "check the path and its permissions, or set metrics.file");
}

void check_disk(const fs::path& path) {
  if (const int error = probe(path); error != 0)
    throw Error(
        fmt::format("memory.disk_path {} cannot be written: {}", path.string(), reason(error)),
        "name a directory on a local disk that exists and is yours");
  switch (disk_kind_of(path)) {
    case DiskKind::kMemory:
      throw Error(
          fmt::format("memory.disk_path {} is not on a disk but in memory (tmpfs)", path.string()),
          "name a directory on a local disk, or allow host memory by memory.host: what goes here "
          "would take memory that is counted as free");
    case DiskKind::kNetwork:
      log_warning(
          "memory.disk_path {} is on a network or FUSE file system: pages are read and written "
          "there in every step, and a local disk is faster",
          path.string());
      break;
    case DiskKind::kLocal:
      break;
  }
}

}  // namespace

fs::path nearest_existing(const fs::path& path) {
  std::error_code none;
  const fs::path absolute = fs::absolute(path, none);
  fs::path found = fs::weakly_canonical(absolute, none);
  if (found.empty()) found = absolute;
  while (!fs::exists(found, none) && found.has_relative_path()) found = found.parent_path();
  return found;
}

DiskKind disk_kind(long file_system) {
  // Numbers that linux/magic.h does not define on every system.
  constexpr long kCifs = 0xff534d42, kSmb2 = 0xfe534d42, kFuse = 0x65735546, kCeph = 0x00c36400,
                 kLustre = 0x0bd00bd0, kGpfs = 0x47504653, kRamfs = 0x858458f6;
  switch (file_system & 0xffffffff) {  // some systems sign-extend it
    case TMPFS_MAGIC:
    case kRamfs:
    case HUGETLBFS_MAGIC:
      return DiskKind::kMemory;
    case NFS_SUPER_MAGIC:
    case SMB_SUPER_MAGIC:
    case AFS_SUPER_MAGIC:
    case V9FS_MAGIC:
    case kCifs:
    case kSmb2:
    case kFuse:
    case kCeph:
    case kLustre:
    case kGpfs:
      return DiskKind::kNetwork;
    default:
      return DiskKind::kLocal;
  }
}

DiskKind disk_kind_of(const fs::path& path) {
  struct statfs info = {};
  return ::statfs(path.c_str(), &info) == 0 ? disk_kind(static_cast<long>(info.f_type))
                                            : DiskKind::kLocal;
}

void check_outputs(const RunPlan& plan) {
  check_checkpoints(plan.config.checkpoint.directory);
  check_metrics(plan.config.metrics.file);
  if (plan.needs.disk_total() > 0) check_disk(plan.config.memory.disk_path);
}

}  // namespace longstride
