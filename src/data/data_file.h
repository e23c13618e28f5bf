// DataFile: a regular file that stays open and is read by position.
//
// Not a map: where a file is cut short during a run, a map ends the process by SIGBUS, a read is an
// Error that a run can save after. Const calls are thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include "base/error.h"

namespace longstride {

class DataFile {
 public:
  DataFile() = default;  // no file
  // Throws Error where there is none to read, or it is no regular file.
  explicit DataFile(const std::filesystem::path& path);
  DataFile(DataFile&& other) noexcept;
  DataFile& operator=(DataFile&& other) noexcept;
  ~DataFile();

  bool is_open() const { return fd_ >= 0; }
  std::int64_t size() const { return size_; }  // in bytes, when it was opened
  const std::filesystem::path& path() const { return path_; }

  // All of `out`, from the byte `offset` on. Throws Error where the file has become shorter than
  // that, or cannot be read.
  void read(std::int64_t offset, std::span<std::byte> out) const;

 private:
  std::filesystem::path path_;
  int fd_ = -1;
  std::int64_t size_ = 0;
};

// For data that are not what they were when the run began.
class FileChanged : public Error {
 public:
  using Error::Error;
};
FileChanged changed_in_use(const std::filesystem::path& path);

}  // namespace longstride
