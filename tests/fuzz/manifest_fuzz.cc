// Any text as the manifest.json of a prepared directory: an Error, or shards whose names are plain
// and whose sizes fit together.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <set>
#include <string_view>

#include "base/error.h"
#include "data/manifest.h"

namespace {

void check(bool holds) {
  if (!holds) std::abort();
}

void check_shard(const longstride::ManifestShard& shard, const longstride::Manifest& manifest) {
  check(!shard.name.empty() && shard.name.find('/') == std::string::npos);
  check(shard.name.find('\0') == std::string::npos && shard.name.front() != '.');
  check(shard.documents >= 0 && shard.documents <= shard.tokens);
  check(shard.token_file.bytes == shard.tokens * manifest.token_bytes);
  check(shard.index_file.bytes == 8 * (shard.documents + 1));
  check(shard.token_file.xxh3.size() == 16 && shard.index_file.xxh3.size() == 16);
  using longstride::TargetsKind;
  if (manifest.targets != TargetsKind::kAll)
    check(shard.target_file.bytes ==
          shard.tokens * (manifest.targets == TargetsKind::kMask ? 1 : 4));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    const longstride::Manifest manifest = longstride::parse_manifest(text, "fuzz");
    check(manifest.token_bytes == 2 || manifest.token_bytes == 4);
    check(manifest.vocabulary >= 1 && manifest.vocabulary <= std::int64_t{1} << 31);
    check(!manifest.splits.empty());
    std::set<std::string> names;
    for (const auto& [name, split] : manifest.splits) {
      std::int64_t tokens = 0, documents = 0;
      for (const longstride::ManifestShard& shard : split.shards) {
        check_shard(shard, manifest);
        check(names.insert(shard.name).second);
        tokens += shard.tokens;
        documents += shard.documents;
      }
      check(tokens == split.tokens && documents == split.documents && tokens >= 0);
    }
  } catch (const longstride::Error&) {
  }
  return 0;
}
