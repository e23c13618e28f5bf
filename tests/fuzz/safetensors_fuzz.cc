// Any bytes as a safetensors file: an Error, or a header whose tensors all lie within the file.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "base/error.h"
#include "model/safetensors_header.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const auto bytes = std::as_bytes(std::span(data, size));
    std::int64_t total = 0;
    for (const longstride::TensorInfo& t : longstride::parse_safetensors(bytes, "fuzz").tensors) {
      if (t.begin < 8 || t.bytes < 0 || t.begin + t.bytes > static_cast<std::int64_t>(size))
        std::abort();
      total += t.bytes;
    }
    if (total > static_cast<std::int64_t>(size)) std::abort();
  } catch (const longstride::Error&) {
  }
  return 0;
}
