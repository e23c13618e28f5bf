// DataFile: a regular file that stays open and is read by position.
//
// Not a memory map: if a file is truncated during a run, a map ends the process by SIGBUS, while a
// read throws an Error after which the run can still save. Const calls are thread-safe.
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
  // Throws Error if the file cannot be read or is not a regular file.
  explicit DataFile(const std::filesystem::path& path);
  DataFile(DataFile&& other) noexcept;
  DataFile& operator=(DataFile&& other) noexcept;
  ~DataFile();

  bool is_open() const { return fd_ >= 0; }
  std::int64_t size() const { return size_; }  // in bytes, when it was opened
  const std::filesystem::path& path() const { return path_; }

  // Fills `out` from byte `offset` on. Throws Error if the file has become shorter than that, or
  // cannot be read.
  void read(std::int64_t offset, std::span<std::byte> out) const;

 private:
  std::filesystem::path path_;
  int fd_ = -1;
  std::int64_t size_ = 0;
};

// Thrown when data have changed since the run began.
class FileChanged : public Error {
 public:
  using Error::Error;
};
FileChanged changed_in_use(const std::filesystem::path& path);

}  // namespace longstride
