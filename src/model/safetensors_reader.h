// Reads tensors by name from one safetensors file or a sharded model, through memory maps: opening
// reads only the headers. Immutable after construction, so any number of threads may read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "model/safetensors_header.h"

namespace longstride {

class SafetensorsReader {
 public:
  // One file.
  static SafetensorsReader open_file(const std::filesystem::path& path);
  // Several files that have no tensor in common.
  static SafetensorsReader open_files(const std::vector<std::filesystem::path>& paths);
  // A model directory: model.safetensors, or the shards of model.safetensors.index.json.
  static SafetensorsReader open_model(const std::filesystem::path& directory);

  // All tensors, sorted by name.
  std::vector<std::string> names() const;
  bool contains(std::string_view name) const;
  // These throw Error if there is no tensor of that name; bytes() and read_floats() also if its
  // dtype is not one of DType.
  const TensorInfo& info(std::string_view name) const;
  const std::filesystem::path& file_of(std::string_view name) const;
  // The tensor's bytes in the map, valid while the reader lives; not necessarily aligned to the
  // element size.
  std::span<const std::byte> bytes(std::string_view name) const;
  // A copy as floats, from F32, F16, BF16 or F64.
  std::vector<float> read_floats(std::string_view name) const;

  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  // Bytes of all tensors together.
  std::int64_t total_bytes() const;

 private:
  struct Entry {
    std::size_t file = 0;
    TensorInfo info;
  };
  void add_file(const std::filesystem::path& path);
  const Entry& find(std::string_view name) const;

  std::string where_;
  std::vector<MappedFile> files_;
  std::map<std::string, Entry, std::less<>> entries_;
  std::map<std::string, std::string> metadata_;
};

}  // namespace longstride
