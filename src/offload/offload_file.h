// A file for what is offloaded: its space is reserved when it is made, and it has no name, so that
// the system removes it when the process ends, however it ends. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

namespace longstride {

class OffloadFile {
 public:
  // Throws Error where the directory cannot be written or has not that much room; `what` goes
  // there, for the message.
  OffloadFile(const std::filesystem::path& directory, std::int64_t bytes, const std::string& what);
  OffloadFile(const OffloadFile&) = delete;
  OffloadFile& operator=(const OffloadFile&) = delete;
  ~OffloadFile();

  // From now on past the system's cache (O_DIRECT), or through it; memory, offsets and lengths are
  // then multiples of the disk's blocks. Returns 0, or errno's number where the file system
  // refuses.
  int set_direct(bool direct) const;
  int descriptor() const { return file_; }

 private:
  std::filesystem::path directory_;
  int file_ = -1;
};

}  // namespace longstride
