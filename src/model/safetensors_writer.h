// Writes safetensors, one file or sharded with an index, streaming: at most the bytes that a source
// passes at once are held in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "tensor/dtype.h"
#include "tensor/view.h"

namespace longstride {

struct TensorToWrite {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
};

struct WrittenFile {
  std::string name;  // relative to the directory it was written into
  std::int64_t bytes = 0;
  std::uint64_t checksum = 0;  // XXH3-64 of the whole file
};

// Takes the next bytes of a tensor.
using ByteSink = std::function<void(std::span<const std::byte>)>;
// Passes all bytes of tensor number `index` to `sink`, in order, in any number of pieces. Called
// once per tensor, in file order, which is not the order of the tensors (wider element types come
// first).
using TensorSource = std::function<void(std::int64_t index, const ByteSink& sink)>;

// One file. `metadata` goes into the header; {"format": "pt"} is what transformers expects.
WrittenFile write_safetensors_file(const std::filesystem::path& path,
                                   const std::vector<TensorToWrite>& tensors,
                                   const TensorSource& source,
                                   const std::map<std::string, std::string>& metadata = {
                                       {"format", "pt"}});

// The same with some of the tensors, by their indices.
WrittenFile write_safetensors_part(const std::filesystem::path& path,
                                   const std::vector<TensorToWrite>& tensors,
                                   const std::vector<std::int64_t>& indices,
                                   const TensorSource& source);
// model.safetensors.index.json: which file, by name, holds a tensor.
WrittenFile write_safetensors_index(const std::filesystem::path& directory,
                                    const std::vector<TensorToWrite>& tensors,
                                    const std::map<std::string, std::string>& files);

inline constexpr std::int64_t kDefaultShardBytes = 5'000'000'000;

// model.safetensors if all fits in `max_shard_bytes`; else model-0000x-of-0000y.safetensors and
// model.safetensors.index.json. A tensor larger than `max_shard_bytes` gets its own shard.
std::vector<WrittenFile> write_safetensors_model(const std::filesystem::path& directory,
                                                 const std::vector<TensorToWrite>& tensors,
                                                 const TensorSource& source,
                                                 std::int64_t max_shard_bytes = kDefaultShardBytes);

}  // namespace longstride
