// Manifest: what manifest.json says of a prepared directory (docs/data.md, "Prepared directories").
// Plain data.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace longstride {

inline constexpr const char* kManifestFile = "manifest.json";

enum class TargetsKind : std::uint8_t { kAll, kMask, kWeights };

struct ManifestFile {
  std::int64_t bytes = 0;
  std::string xxh3;  // 16 hexadecimal digits
};

// The files of a shard are NAME.tokens, NAME.index and NAME.mask or NAME.weights.
struct ManifestShard {
  std::string name;  // without folders
  std::int64_t documents = 0, tokens = 0;
  ManifestFile token_file, index_file;
  ManifestFile target_file;  // mask or weights; of no use without them
};

struct ManifestSplit {
  std::int64_t documents = 0, tokens = 0;
  std::vector<ManifestShard> shards;
};

struct Manifest {
  int token_bytes = 4;  // 2 or 4
  std::int64_t vocabulary = 0;
  TargetsKind targets = TargetsKind::kAll;
  std::map<std::string, ManifestSplit> splits;  // "train" and "eval", as far as they are there
};

// Checks that all numbers fit together. `where` is the file, for messages. For any text, throws
// nothing but Error.
Manifest parse_manifest(std::string_view text, const std::string& where);

// True if the directory holds a manifest.json that says it is longstride's, of any version, or,
// with `any`, any manifest.json at all.
bool is_prepared(const std::filesystem::path& path, bool any);

}  // namespace longstride
