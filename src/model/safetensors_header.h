// The header of a safetensors file, parsed strictly:
// https://github.com/huggingface/safetensors#format
//
//   8 bytes  length N of the header, little-endian
//   N bytes  JSON: {"name": {"dtype", "shape", "data_offsets": [begin, end]}, ...,
//            "__metadata__": {text: text}}
//   the rest the tensors' bytes, row-major, without holes or overlaps; offsets count from here
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tensor/dtype.h"

namespace longstride {

struct TensorInfo {
  std::string name;
  std::string dtype_name;      // as in the file: "BF16", "F8_E4M3", ...
  std::optional<DType> dtype;  // empty for types that longstride cannot compute with
  std::vector<std::int64_t> shape;
  std::int64_t begin = 0;  // bytes, from the start of the file
  std::int64_t bytes = 0;
};

struct SafetensorsHeader {
  std::vector<TensorInfo> tensors;  // in the order of their bytes
  std::map<std::string, std::string> metadata;
};

// `file` is the whole file. Throws Error beginning with `where` unless every byte of it is
// accounted for. Memory is bounded in proportion to the size of the file.
SafetensorsHeader parse_safetensors(std::span<const std::byte> file, const std::string& where);

}  // namespace longstride
