// An unnamed file for offloaded data: its space is reserved on construction, and the system removes
// it however the process ends. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

namespace longstride {

class OffloadFile {
 public:
  // Throws Error if the directory cannot be written or has too little space; `what` names the
  // content in the message.
  OffloadFile(const std::filesystem::path& directory, std::int64_t bytes, const std::string& what);
  OffloadFile(const OffloadFile&) = delete;
  OffloadFile& operator=(const OffloadFile&) = delete;
  ~OffloadFile();

  // From now on bypasses the page cache (O_DIRECT), or not. With O_DIRECT, memory addresses,
  // offsets and lengths must be multiples of the disk's blocks. Returns 0, or errno if the file
  // system refuses.
  int set_direct(bool direct) const;
  int descriptor() const { return file_; }

 private:
  std::filesystem::path directory_;
  int file_ = -1;
};

}  // namespace longstride
