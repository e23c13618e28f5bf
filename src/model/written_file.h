// Writes the small files of a model or adapter directory, each flushed to the disk.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

#include "base/json.h"
#include "model/safetensors_writer.h"

namespace longstride {

// The whole content of a new file.
WrittenFile write_bytes(const std::filesystem::path& path, std::span<const std::byte> bytes);
WrittenFile write_json(const std::filesystem::path& path, const Json& json);

}  // namespace longstride
