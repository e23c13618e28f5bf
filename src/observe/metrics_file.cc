#include "observe/metrics_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <string_view>
#include <system_error>

#include "base/error.h"
#include "base/files.h"
#include "base/system_calls.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const char* doing, const fs::path& path, int error) {
  throw Error(
      fmt::format("cannot {} metrics file {}: {}", doing, path.string(), std::strerror(error)),
      error == ENOSPC || error == EDQUOT
          ? "free some disk space, or set metrics.file to another disk"
          : "check the path and its permissions, or set metrics.file");
}

// How lines begin, now and before they had a time: recognizes a file of one truncated line.
constexpr std::string_view kBeginnings[] = {"{\"time\":", "{\"step\":"};

bool begins_as_ours(std::string_view text) {
  return std::ranges::any_of(kBeginnings, [&](std::string_view beginning) {
    return text.starts_with(beginning.substr(0, text.size()));
  });
}

[[noreturn]] void not_ours(const fs::path& path, std::int64_t line) {
  throw Error(fmt::format("{}:{}: not a record of a step", path.string(), line),
              "the file is not one of ours, or damaged: move it away, or set metrics.file");
}

std::int64_t step_of(std::string_view line, const fs::path& path, std::int64_t number) {
  const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("step") || !json["step"].is_number_integer() ||
      !json.contains("loss") || !(json.contains("gradient_norm") || json.contains("kind")))
    not_ours(path, number);
  return json["step"].get<std::int64_t>();
}

// Bytes of the file up to the first line that is truncated or of a step after `last_step`.
std::size_t kept_bytes(std::string_view text, const fs::path& path, std::int64_t last_step) {
  std::size_t begin = 0;
  for (std::int64_t number = 1; begin < text.size(); ++number) {
    const std::string_view rest = text.substr(begin);
    const std::size_t length = rest.find('\n');
    if (length == std::string_view::npos) {
      if (number == 1 && !begins_as_ours(rest)) not_ours(path, 1);
      break;
    }
    if (step_of(rest.substr(0, length), path, number) > last_step) break;
    begin += length + 1;
  }
  return begin;
}

// Truncates the file in place, so that it stays the one that is locked.
void drop_later_steps(const fs::path& path, int fd, std::int64_t last_step) {
  std::size_t kept = 0;
  {
    const MappedFile file(path);
    const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()),
                                file.bytes().size());
    kept = kept_bytes(text, path, last_step);
    if (kept == text.size()) return;
  }
  if (retry_eintr([&] { return ::ftruncate(fd, static_cast<off_t>(kept)); }) != 0)
    fail("cut", path, errno);
}

// The file may be removed or replaced between open and lock: then the path names another file.
bool is_still_named(const fs::path& path, int fd) {
  struct stat opened {};
  struct stat named {};
  return ::fstat(fd, &opened) == 0 && ::stat(path.c_str(), &named) == 0 &&
         opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

int open_locked(const fs::path& path) {
  constexpr int kMostTries = 10;  // some file systems give a file a new inode number each time
  for (int tries = 1;; ++tries) {
    const int fd = retry_eintr(
        [&] { return ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644); });
    if (fd < 0) fail("open", path, errno);
    // Without support for locks in the file system, there is none.
    const bool taken =
        retry_eintr([&] { return ::flock(fd, LOCK_EX | LOCK_NB); }) != 0 && errno == EWOULDBLOCK;
    if (!taken && (tries == kMostTries || is_still_named(path, fd))) return fd;
    close_descriptor(fd);
    if (taken)
      throw Error(fmt::format("another process is writing metrics file {}", path.string()),
                  "wait until it has ended, or set metrics.file to another file");
  }
}

}  // namespace

MetricsFile::MetricsFile(const fs::path& path, std::int64_t last_step) : path_(path) {
  std::error_code error;
  if (path.has_parent_path()) fs::create_directories(path.parent_path(), error);
  if (error) fail("create the directory of", path, error.value());
  fd_ = open_locked(path);
  try {
    if (fs::is_regular_file(path, error)) drop_later_steps(path, fd_, last_step);
  } catch (...) {
    close_descriptor(fd_);
    throw;
  }
}

MetricsFile::~MetricsFile() { close_descriptor(fd_); }

void MetricsFile::append(const StepRecord& record) { append(record_to_json(record)); }

void MetricsFile::append(const OrderedJson& json) {
  const std::string line = dump_json(json) + "\n";
  const off_t begin = ::lseek(fd_, 0, SEEK_END);
  std::size_t written = 0;
  while (written < line.size()) {
    const ssize_t n =
        retry_eintr([&] { return ::write(fd_, line.data() + written, line.size() - written); });
    if (n < 0) {
      const int error = errno;
      // A partial line followed by another would not be recognized as ours.
      if (written > 0) retry_eintr([&] { return ::ftruncate(fd_, begin); });
      fail("write", path_, error);
    }
    written += static_cast<std::size_t>(n);
  }
}

}  // namespace longstride
