#include "data/manifest.h"

#include <algorithm>
#include <limits>
#include <set>
#include <system_error>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFormat = "longstride data";
constexpr std::int64_t kVersion = 1;
constexpr std::int64_t kMostTokens = std::int64_t{1} << 50;  // sums and products fit in 63 bits
constexpr const char* kHint = "prepare the data again, or restore the file from a copy";

// Reads values of one manifest, with messages that name them.
class Reader {
 public:
  explicit Reader(const std::string& where) : where_(where) {}

  [[noreturn]] void fail(const std::string& what) const {
    throw Error(fmt::format("{}: {}", where_, what), kHint);
  }
  const Json& at(const Json& object, const char* key, const std::string& of) const {
    if (!object.is_object()) fail(fmt::format("{} is no object", of));
    const auto found = object.find(key);
    if (found == object.end()) fail(fmt::format("{} has no \"{}\"", of, key));
    return *found;
  }
  std::int64_t count(const Json& object, const char* key, const std::string& of,
                     std::int64_t most = kMostTokens) const {
    const Json& value = at(object, key, of);
    // Numbers such as 1.5 and true would be converted silently.
    if (!value.is_number_unsigned() ||
        value.get<std::uint64_t>() > static_cast<std::uint64_t>(most))
      fail(fmt::format("\"{}\" of {} is {}", key, of, shortened(value)));
    return static_cast<std::int64_t>(value.get<std::uint64_t>());
  }
  std::string text(const Json& object, const char* key, const std::string& of) const {
    const Json& value = at(object, key, of);
    if (!value.is_string()) fail(fmt::format("\"{}\" of {} is {}", key, of, shortened(value)));
    return value.get<std::string>();
  }
  void same(std::int64_t found, std::int64_t expected, const std::string& what) const {
    if (found != expected)
      fail(
          fmt::format("{} is {}, and the rest of the manifest makes it {}", what, found, expected));
  }

  static std::string shortened(const Json& value) {
    constexpr std::size_t kMost = 60;
    std::string text = dump_json(value);
    if (text.size() > kMost) text.replace(kMost, std::string::npos, "...");
    return text;
  }

 private:
  const std::string& where_;
};

bool is_file_name(const std::string& name) {
  return !name.empty() && name.size() < 200 && name.front() != '.' &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
}

ManifestFile read_file(const Reader& read, const Json& files, const char* kind,
                       const std::string& shard, std::int64_t bytes) {
  const std::string of = fmt::format("{}.{}", shard, kind);
  const Json& file = read.at(files, kind, fmt::format("\"files\" of {}", shard));
  ManifestFile found{read.count(file, "bytes", of, std::numeric_limits<std::int64_t>::max()),
                     read.text(file, "xxh3", of)};
  read.same(found.bytes, bytes, fmt::format("\"bytes\" of {}", of));
  if (found.xxh3.size() != 16 ||
      found.xxh3.find_first_not_of("0123456789abcdef") != std::string::npos)
    read.fail(fmt::format("\"xxh3\" of {} is not 16 hexadecimal digits", of));
  return found;
}

ManifestShard read_shard(const Reader& read, const Json& json, const Manifest& manifest) {
  ManifestShard shard;
  shard.name = read.text(json, "name", "a shard");
  if (!is_file_name(shard.name))
    read.fail(fmt::format("a shard is called {}, which is no name of a file",
                          Reader::shortened(Json(shard.name))));
  shard.documents = read.count(json, "documents", shard.name);
  shard.tokens = read.count(json, "tokens", shard.name);
  if (shard.documents > shard.tokens)
    read.fail(
        fmt::format("{} has {} documents in {} tokens", shard.name, shard.documents, shard.tokens));
  if (shard.documents == 0 && shard.tokens > 0)
    read.fail(fmt::format("{} has {} tokens in no document", shard.name, shard.tokens));
  const Json& files = read.at(json, "files", shard.name);
  shard.token_file =
      read_file(read, files, "tokens", shard.name, shard.tokens * manifest.token_bytes);
  shard.index_file = read_file(read, files, "index", shard.name, 8 * (shard.documents + 1));
  if (manifest.targets == TargetsKind::kMask)
    shard.target_file = read_file(read, files, "mask", shard.name, shard.tokens);
  if (manifest.targets == TargetsKind::kWeights)
    shard.target_file = read_file(read, files, "weights", shard.name, 4 * shard.tokens);
  return shard;
}

ManifestSplit read_split(const Reader& read, const Json& json, const std::string& name,
                         const Manifest& manifest, std::set<std::string>& names) {
  ManifestSplit split;
  split.documents = read.count(json, "documents", name);
  split.tokens = read.count(json, "tokens", name);
  const Json& shards = read.at(json, "shards", name);
  if (!shards.is_array()) read.fail(fmt::format("\"shards\" of {} is no array", name));
  std::int64_t documents = 0, tokens = 0;
  for (const Json& one : shards) {
    split.shards.push_back(read_shard(read, one, manifest));
    const ManifestShard& shard = split.shards.back();
    if (!names.insert(shard.name).second)
      read.fail(fmt::format("two shards are called {}", shard.name));
    documents += shard.documents;
    tokens += shard.tokens;
    if (tokens > kMostTokens) read.fail(fmt::format("{} has more tokens than can be", name));
  }
  read.same(split.documents, documents, fmt::format("\"documents\" of {}", name));
  read.same(split.tokens, tokens, fmt::format("\"tokens\" of {}", name));
  return split;
}

void check_version(const Reader& read, const Json& json, const std::string& where) {
  const Json& format = read.at(json, "format", "it");
  if (format != kFormat)
    throw Error(fmt::format("{}: its \"format\" is {}, not \"{}\"", where,
                            Reader::shortened(format), kFormat),
                "name a directory that `longstride prepare` wrote; for text files set data.format "
                "to \"text\"");
  const std::int64_t version =
      read.count(json, "version", "it", std::numeric_limits<std::int64_t>::max());
  if (version > kVersion)
    throw Error(fmt::format("{}: version {}, this longstride reads {}", where, version, kVersion),
                "use the longstride that prepared the data, or a newer one");
  if (version < 1) read.fail(fmt::format("\"version\" of it is {}", version));
}

}  // namespace

Manifest parse_manifest(std::string_view text, const std::string& where) {
  const Json json = parse_json(std::string(text), where);
  const Reader read(where);
  check_version(read, json, where);
  Manifest manifest;
  manifest.token_bytes = static_cast<int>(read.count(json, "token_bytes", "it", 4));
  if (manifest.token_bytes != 2 && manifest.token_bytes != 4)
    read.fail(fmt::format("\"token_bytes\" is {}, not 2 or 4", manifest.token_bytes));
  manifest.vocabulary = read.count(json, "vocabulary", "it", std::int64_t{1} << 31);
  if (manifest.vocabulary == 0 || (manifest.token_bytes == 2 && manifest.vocabulary > 65536))
    read.fail(fmt::format("a vocabulary of {} does not go with tokens of {} bytes",
                          manifest.vocabulary, manifest.token_bytes));
  const std::string targets = read.text(json, "targets", "it");
  if (targets == "mask")
    manifest.targets = TargetsKind::kMask;
  else if (targets == "weights")
    manifest.targets = TargetsKind::kWeights;
  else if (targets != "all")
    read.fail(fmt::format("\"targets\" is {}, not \"all\", \"mask\" or \"weights\"",
                          Reader::shortened(Json(targets))));
  const Json& splits = read.at(json, "splits", "it");
  std::set<std::string> names;
  for (const char* name : {"train", "eval"})
    if (splits.is_object() && splits.contains(name))
      manifest.splits[name] = read_split(read, splits.at(name), name, manifest, names);
  if (manifest.splits.empty()) read.fail("it has neither a train nor an eval split");
  return manifest;
}

bool is_prepared(const fs::path& path, bool any) {
  std::error_code none;
  if (!fs::is_directory(path, none) || !fs::is_regular_file(path / kManifestFile, none))
    return false;
  if (any) return true;
  try {
    const Json json = read_json(path / kManifestFile);
    return json.is_object() && json.value("format", Json()) == kFormat;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace longstride
