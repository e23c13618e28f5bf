// Files: read-only maps, whole-file reads, and writes that either happen entirely or not at all.
// Unless they say otherwise, functions throw Error with the path and the operating system's reason.
// Classes here are not thread-safe, except that any thread may read a MappedFile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>

namespace longstride {

// A whole file mapped read-only. Movable; unmapped on destruction. An empty file maps to an empty
// span.
class MappedFile {
 public:
  MappedFile() = default;
  explicit MappedFile(const std::filesystem::path& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

std::string read_text(const std::filesystem::path& path);

// Sequential writer with a running XXH3-64 of all bytes written. `finish` flushes to the disk
// (fsync) and closes; a writer destroyed without `finish` leaves a file that must not be used.
class FileWriter {
 public:
  explicit FileWriter(const std::filesystem::path& path);
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;
  ~FileWriter();
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  void finish();
  std::uint64_t bytes_written() const { return written_; }
  std::uint64_t checksum() const;

 private:
  std::filesystem::path path_;
  int fd_ = -1;
  std::uint64_t written_ = 0;
  void* hash_ = nullptr;
};

// XXH3-64 of a whole file, or of a text.
std::uint64_t checksum_of_file(const std::filesystem::path& path);
std::uint64_t checksum_of_text(std::string_view text);

// Writes a temporary beside `path`, syncs it and renames it over `path`.
void write_file_atomic(const std::filesystem::path& path, std::string_view text);
// The same, with `fill` writing the content piece by piece.
void write_file_atomic(const std::filesystem::path& path,
                       const std::function<void(FileWriter&)>& fill);
// The same, with `fill` creating, writing and syncing the temporary at the path it is given.
void replace_file_atomic(const std::filesystem::path& path,
                         const std::function<void(const std::filesystem::path&)>& fill);
// Throws Error if write_file_atomic could not write `path` now, or if `path` exists and is not a
// regular file (a directory, a device). Leaves nothing behind.
void check_file_writable(const std::filesystem::path& path);

// A directory that appears whole or not at all: fill `path()` (a hidden sibling of `target`), then
// `commit()`, which syncs it and renames it to `target` (replacing an existing one). Without
// commit, the temporary is removed.
class DirectoryWriter {
 public:
  explicit DirectoryWriter(std::filesystem::path target);
  DirectoryWriter(const DirectoryWriter&) = delete;
  DirectoryWriter& operator=(const DirectoryWriter&) = delete;
  ~DirectoryWriter();
  const std::filesystem::path& path() const { return temporary_; }
  void commit();

 private:
  std::filesystem::path target_, temporary_;
  bool committed_ = false;
};

// An exclusive lock on a directory, held until destruction or the end of the process. Throws Error
// if another holder has it. On a file system without locks it does nothing.
class DirectoryLock {
 public:
  explicit DirectoryLock(const std::filesystem::path& directory);
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;
  ~DirectoryLock();

 private:
  int fd_;
};

// Removes a directory atomically as seen under its name: renames it first, to a name as
// DirectoryWriter's temporaries have, so a killed process leaves only that. Does not throw.
std::error_code remove_directory_whole(const std::filesystem::path& path);

// True for the names DirectoryWriter gives its temporaries, so that leftovers of a killed process
// can be found.
bool is_unfinished_directory(const std::filesystem::path& path);

// Creates the directory and its parents; throws Error if it cannot be created or written to.
void make_writable_directory(const std::filesystem::path& path);

}  // namespace longstride
