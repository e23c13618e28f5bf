#include "data/prepared.h"

#include <sys/resource.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "data/joined_corpus.h"
#include "data/manifest.h"
#include "data/token_file.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;

// Shards stay open, two files each.
void allow_open_files(std::size_t shards) {
  constexpr rlim_t kOthers = 256;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const rlim_t needed = 2 * static_cast<rlim_t>(shards) + kOthers;
  if (limit.rlim_cur >= needed) return;
  limit.rlim_cur = std::min(needed, limit.rlim_max);
  ::setrlimit(RLIMIT_NOFILE, &limit);  // if it fails, opening a file will say so
}

void check_size(const fs::path& path, const ManifestFile& listed, const std::string& manifest) {
  const std::int64_t size = DataFile(path).size();
  if (size != listed.bytes)
    throw Error(
        fmt::format("{} has {} bytes, and {} says {}", path.string(), size, manifest, listed.bytes),
        "the file was cut short or altered: put it back as it was, or prepare the data "
        "again");
}

std::shared_ptr<const Corpus> open_shard(const fs::path& directory, const Manifest& manifest,
                                         const ManifestShard& shard) {
  const std::string source = (directory / kManifestFile).string();
  TokenFileOptions options;
  options.type = manifest.token_bytes == 2 ? TokenType::kU16 : TokenType::kU32;
  options.described = DescribedTokens{.source = source, .vocabulary = manifest.vocabulary};
  const auto file = [&](const char* kind, const ManifestFile& listed) {
    fs::path path = directory / (shard.name + "." + kind);
    check_size(path, listed, source);
    options.described->files.push_back({0, path, listed.xxh3, source});
    return path;
  };
  const fs::path tokens = file("tokens", shard.token_file);
  options.document_index = file("index", shard.index_file);
  if (manifest.targets == TargetsKind::kMask) options.loss_mask = file("mask", shard.target_file);
  if (manifest.targets == TargetsKind::kWeights)
    options.weights = file("weights", shard.target_file);
  auto corpus = std::make_shared<TokenFile>(tokens, options);
  // The index ascends to its last offset, so that this one tells whether it is the closing one.
  if (corpus->last_offset() != shard.tokens)
    throw Error(fmt::format("{}: the last offset is {}, and the shard has {} tokens",
                            options.document_index.string(), corpus->last_offset(), shard.tokens),
                "prepare the data again");
  return corpus;
}

}  // namespace

std::shared_ptr<const Corpus> open_prepared(const fs::path& directory, const std::string& split) {
  const std::string source = (directory / kManifestFile).string();
  const Manifest manifest = parse_manifest(read_text(directory / kManifestFile), source);
  const auto usable = [&](const std::string& name) {
    const auto found = manifest.splits.find(name);
    return found != manifest.splits.end() && found->second.tokens > 0;
  };
  std::string chosen = split;
  if (split == "eval" && !usable(split) && usable("train")) {
    chosen = "train";
    log_info("{} has no eval split: its train split is read", directory.string());
  }
  if (!usable(chosen))
    throw Error(fmt::format("{}: the {} split holds no tokens", source, chosen),
                "prepare the data again, with more documents");
  const ManifestSplit& found = manifest.splits.at(chosen);
  allow_open_files(found.shards.size());
  std::vector<std::shared_ptr<const Corpus>> parts;
  for (const ManifestShard& shard : found.shards)
    if (shard.tokens > 0) parts.push_back(open_shard(directory, manifest, shard));
  if (parts.size() == 1) return parts.front();
  return std::make_shared<JoinedCorpus>(std::move(parts));
}

}  // namespace longstride
