#include "observe/metrics_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <string_view>
#include <system_error>

#include "base/error.h"
#include "base/files.h"

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

std::int64_t step_of(std::string_view line, const fs::path& path, std::int64_t number) {
  const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("step") || !json["step"].is_number_integer())
    throw Error(fmt::format("{}:{}: not a record of a step", path.string(), number),
                "the file is not one of ours, or damaged: move it away, or set metrics.file");
  return json["step"].get<std::int64_t>();
}

// Bytes of the file up to the first line that is cut short or of a step after `last_step`.
std::size_t kept_bytes(std::string_view text, const fs::path& path, std::int64_t last_step) {
  std::size_t begin = 0;
  for (std::int64_t number = 1; begin < text.size(); ++number) {
    const std::size_t end = text.find('\n', begin);
    if (end == std::string_view::npos ||
        step_of(text.substr(begin, end - begin), path, number) > last_step)
      break;
    begin = end + 1;
  }
  return begin;
}

void drop_later_steps(const fs::path& path, std::int64_t last_step) {
  const MappedFile file(path);
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()),
                              file.bytes().size());
  const std::size_t kept = kept_bytes(text, path, last_step);
  if (kept < text.size()) write_file_atomic(path, text.substr(0, kept));
}

}  // namespace

MetricsFile::MetricsFile(const fs::path& path, std::int64_t last_step) : path_(path) {
  std::error_code error;
  if (path.has_parent_path()) fs::create_directories(path.parent_path(), error);
  if (error) fail("create the directory of", path, error.value());
  if (fs::is_regular_file(path, error)) drop_later_steps(path, last_step);
  fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd_ < 0) fail("open", path, errno);
}

MetricsFile::~MetricsFile() { ::close(fd_); }

void MetricsFile::append(const StepRecord& record) {
  const std::string line = record_to_json(record).dump() + "\n";
  std::size_t written = 0;
  while (written < line.size()) {
    const ssize_t n = ::write(fd_, line.data() + written, line.size() - written);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail("write", path_, errno);
    written += static_cast<std::size_t>(n);
  }
}

}  // namespace longstride
