#include "model/model_digest.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <xxhash.h>

#include <algorithm>
#include <span>

namespace longstride {

std::string model_digest(const ModelDirectory& directory) {
  constexpr std::size_t kSample = 4096;
  const SafetensorsReader& reader = directory.reader();
  std::uint64_t digest = 0;
  const auto add = [&](const void* data, std::size_t bytes) {
    digest = XXH3_64bits_withSeed(data, bytes, digest);
  };
  for (const ParameterSpec& spec : directory.specs()) {
    const std::string head =
        fmt::format("{} {} {}", spec.name, name_of(spec.dtype), spec.shape.to_string());
    add(head.data(), head.size());
    const std::span<const std::byte> bytes = reader.bytes(spec.file_name());
    const std::size_t n = std::min(kSample, bytes.size());
    add(bytes.data(), n);
    add(bytes.data() + (bytes.size() - n), n);
  }
  return fmt::format("{:016x}", digest);
}

}  // namespace longstride
