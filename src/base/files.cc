#include "base/files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/read_ahead.h"
#include "base/system_calls.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;

// A file may replace a regular file and nothing else.
void check_regular(const fs::path& path) {
  if (path.empty()) throw Error("the name of a file is empty", "name a file");
  std::error_code ignored;
  if (!path.has_filename() || (fs::exists(path, ignored) && !fs::is_regular_file(path, ignored)))
    throw Error(fmt::format("{}: not a regular file", path.string()),
                "name a file, not a directory or a device");
}

[[noreturn]] void fail(const char* doing, const fs::path& path, int error) {
  const char* hint = nullptr;
  switch (error) {
    case ENOTDIR:
    case EEXIST:
      hint = "a part of the path is a file, not a directory: choose another path";
      break;
    case ENOENT:
      hint = "check the path";
      break;
    case EACCES:
    case EROFS:
    case EPERM:
      hint = "check the permissions, or choose another directory";
      break;
    case ENOSPC:
    case EDQUOT:
      hint = "free some disk space, or choose another directory; earlier saves are untouched";
      break;
    case EFBIG:
      hint =
          "raise the file size limit (ulimit -f), or choose another directory; earlier saves are "
          "untouched";
      break;
    case ENAMETOOLONG:
      hint = "choose a shorter name";
      break;
    case ELOOP:
      hint = "its symbolic links lead back to themselves: choose another path";
      break;
    case ENOMEM:
      hint = "free memory on this machine, or raise the address-space limit (ulimit -v)";
      break;
    case EMFILE:
    case ENFILE:
      hint = "raise the limit of open files (ulimit -n)";
      break;
    default:
      hint = "check the disk that it is on, or choose another path";
      break;
  }
  throw Error(fmt::format("cannot {} {}: {}", doing, path.string(), std::strerror(error)), hint);
}

int open_file(const fs::path& path, int flags) {
  return retry_eintr([&] { return ::open(path.c_str(), flags, 0644); });
}

// Returns 0 or errno.
int sync_descriptor(int fd) {
  return retry_eintr([&] { return ::fsync(fd); }) == 0 ? 0 : errno;
}

int rename_file(const fs::path& from, const fs::path& to) {
  return retry_eintr([&] { return ::rename(from.c_str(), to.c_str()); });
}

void sync_path(const fs::path& path) {
  const int fd = open_file(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) fail("open", path, errno);
  const int failed = sync_descriptor(fd);
  close_descriptor(fd);
  // Some file systems do not sync directories and return EINVAL.
  if (failed != 0 && failed != EINVAL) fail("sync", path, failed);
}

fs::path parent_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

XXH3_state_t* hash_of(void* p) { return static_cast<XXH3_state_t*>(p); }

constexpr const char* kUnfinished = ".unfinished-";

// The name of a file until it is complete.
fs::path unfinished(const fs::path& path) {
  return path.string() + kUnfinished + std::to_string(::getpid());
}

// The name of a directory until it is complete, or while it is being removed.
fs::path hidden_sibling(const fs::path& path) {
  return parent_of(path) /
         ("." + path.filename().string() + kUnfinished + std::to_string(::getpid()));
}

// Whether an unnamed file can be created in the directory: a process killed here leaves nothing
// behind. Not every file system supports unnamed files.
bool takes_a_file_without_name(const fs::path& directory) {
  const int fd = ::open(directory.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
  if (fd >= 0) ::close(fd);
  return fd >= 0;
}

}  // namespace

MappedFile::MappedFile(const fs::path& path) : path_(path) {
  // O_NONBLOCK: a pipe is to be refused, not waited for.
  const int fd = open_file(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) fail("open", path, errno);
  struct stat info {};
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    close_descriptor(fd);
    throw Error(fmt::format("{}: not a regular file", path.string()),
                "name a file, not a directory or a device");
  }
  size_ = static_cast<std::size_t>(info.st_size);
  if (size_ > 0) {
    void* p = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) {
      const int error = errno;
      close_descriptor(fd);
      fail("map", path, error);
    }
    data_ = static_cast<const std::byte*>(p);
  }
  close_descriptor(fd);
}

MappedFile::MappedFile(MappedFile&& other) noexcept { *this = std::move(other); }

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

std::string read_text(const fs::path& path) {
  const MappedFile file(path);
  const auto bytes = file.bytes();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

FileWriter::FileWriter(const fs::path& path) : path_(path) {
  fd_ = open_file(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC);
  if (fd_ < 0) fail("create", path, errno);
  hash_ = XXH3_createState();
  XXH3_64bits_reset(hash_of(hash_));
}

FileWriter::~FileWriter() {
  if (fd_ >= 0) close_descriptor(fd_);
  XXH3_freeState(hash_of(hash_));
}

void FileWriter::write(std::span<const std::byte> bytes) {
  LS_CHECK(fd_ >= 0, "{} is finished", path_.string());
  XXH3_64bits_update(hash_of(hash_), bytes.data(), bytes.size());
  const std::byte* at = bytes.data();
  std::size_t left = bytes.size();
  while (left > 0) {
    const ssize_t n = retry_eintr([&] { return ::write(fd_, at, left); });
    if (n < 0) fail("write", path_, errno);
    at += n;
    left -= static_cast<std::size_t>(n);
  }
  written_ += bytes.size();
}

void FileWriter::write(std::string_view text) {
  write(std::as_bytes(std::span(text.data(), text.size())));
}

void FileWriter::finish() {
  LS_CHECK(fd_ >= 0, "{} is finished", path_.string());
  if (const int failed = sync_descriptor(fd_); failed != 0 && failed != EINVAL)
    fail("sync", path_, failed);
  if (const int failed = close_descriptor(std::exchange(fd_, -1)); failed != 0)
    fail("close", path_, failed);
}

std::uint64_t FileWriter::checksum() const { return XXH3_64bits_digest(hash_of(hash_)); }

std::uint64_t checksum_of_file(const fs::path& path) {
  // Prefetches while a block is hashed: waiting for a page costs more than hashing it.
  constexpr std::size_t kBlock = std::size_t{8} << 20, kAhead = std::size_t{64} << 20;
  const MappedFile file(path);
  const std::span<const std::byte> bytes = file.bytes();
  const auto block = [&](std::size_t begin) {
    return begin < bytes.size() ? bytes.subspan(begin, std::min(kBlock, bytes.size() - begin))
                                : std::span<const std::byte>();
  };
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> hash(XXH3_createState(),
                                                                      &XXH3_freeState);
  XXH3_64bits_reset(hash.get());
  will_read(bytes.first(std::min(kAhead, bytes.size())));
  for (std::size_t begin = 0; begin < bytes.size(); begin += kBlock) {
    will_read(block(begin + kAhead));
    XXH3_64bits_update(hash.get(), block(begin).data(), block(begin).size());
  }
  return XXH3_64bits_digest(hash.get());
}

std::uint64_t checksum_of_text(std::string_view text) {
  return XXH3_64bits(text.data(), text.size());
}

void write_file_atomic(const fs::path& path, std::string_view text) {
  write_file_atomic(path, [&](FileWriter& writer) { writer.write(text); });
}

void write_file_atomic(const fs::path& path, const std::function<void(FileWriter&)>& fill) {
  replace_file_atomic(path, [&](const fs::path& temporary) {
    FileWriter writer(temporary);
    fill(writer);
    writer.finish();
  });
}

void replace_file_atomic(const fs::path& path, const std::function<void(const fs::path&)>& fill) {
  check_regular(path);
  const fs::path temporary = unfinished(path);
  try {
    fill(temporary);
    if (rename_file(temporary, path) != 0) fail("replace", path, errno);
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  sync_path(parent_of(path));
}

void check_file_writable(const fs::path& path) {
  check_regular(path);
  const fs::path temporary = unfinished(path);
  const int fd = open_file(temporary, O_WRONLY | O_CREAT | O_CLOEXEC);
  if (fd < 0) fail("create", path, errno);
  close_descriptor(fd);
  ::unlink(temporary.c_str());
}

DirectoryLock::DirectoryLock(const fs::path& directory)
    : fd_(open_file(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  if (fd_ < 0) fail("open", directory, errno);
  if (retry_eintr([&] { return ::flock(fd_, LOCK_EX | LOCK_NB); }) == 0 || errno != EWOULDBLOCK)
    return;
  close_descriptor(fd_);
  throw Error(fmt::format("another process is at work in {}", directory.string()),
              "wait until it has ended, or choose another directory");
}

DirectoryLock::~DirectoryLock() { close_descriptor(fd_); }

DirectoryWriter::DirectoryWriter(fs::path target) : target_(std::move(target)) {
  if (!target_.has_filename()) target_ = target_.parent_path();  // "out/" means "out"
  temporary_ = hidden_sibling(target_);
  std::error_code ignored;
  fs::remove_all(temporary_, ignored);
  make_writable_directory(temporary_);
}

DirectoryWriter::~DirectoryWriter() {
  std::error_code ignored;
  if (!committed_) fs::remove_all(temporary_, ignored);
}

void DirectoryWriter::commit() {
  for (const auto& entry : fs::recursive_directory_iterator(temporary_))
    if (entry.is_directory()) sync_path(entry.path());
  sync_path(temporary_);
  std::error_code ignored;
  if (!fs::exists(target_, ignored)) {
    if (rename_file(temporary_, target_) != 0) fail("rename into place", target_, errno);
    committed_ = true;
    sync_path(parent_of(target_));
    return;
  }
  // One call exchanges the two names, so a process killed here leaves either the old or the new
  // directory at the target. The old one, now under the temporary's name, is removed once the
  // exchange is on disk.
  if (retry_eintr([&] {
        return ::renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, target_.c_str(),
                           RENAME_EXCHANGE);
      }) == 0) {
    committed_ = true;
    sync_path(parent_of(target_));
    fs::remove_all(temporary_, ignored);
    return;
  }
  if (errno != EINVAL && errno != ENOSYS) fail("replace", target_, errno);
  // File systems that cannot exchange names (network ones): renames the old directory to a name
  // that is not mistaken for a leftover, and removes it once the new one is in place.
  const fs::path old = target_.string() + ".replaced-" + std::to_string(::getpid());
  if (rename_file(target_, old) != 0) fail("move aside", target_, errno);
  if (rename_file(temporary_, target_) != 0) {
    const int error = errno;
    (void)rename_file(old, target_);
    fail("rename into place", target_, error);
  }
  committed_ = true;
  sync_path(parent_of(target_));
  fs::remove_all(old, ignored);
}

std::error_code remove_directory_whole(const fs::path& path) {
  std::error_code failed;
  const fs::path hidden = hidden_sibling(path);
  fs::rename(path, hidden, failed);
  if (!failed) fs::remove_all(hidden, failed);
  return failed;
}

bool is_unfinished_directory(const fs::path& path) {
  const std::string name = path.filename().string();
  return name.starts_with(".") && name.find(kUnfinished) != std::string::npos;
}

void make_writable_directory(const fs::path& path) {
  if (path.empty()) throw Error("the name of a directory is empty", "name a directory");
  std::error_code error;
  fs::create_directories(path, error);
  if (error) fail("create directory", path, error.value());
  if (takes_a_file_without_name(path)) return;
  // Creating a file tells more than the mode bits: a read-only file system or a quota fails here
  // rather than later.
  std::string probe;
  const int fd = retry_eintr([&] {
    probe = (path / ".probe-XXXXXX").string();
    return ::mkstemp(probe.data());
  });
  if (fd < 0) fail("write in directory", path, errno);
  close_descriptor(fd);
  ::unlink(probe.c_str());
}

}  // namespace longstride
