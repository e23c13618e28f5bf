// Writes prepared directories, as docs/data.md describes them.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/json.h"

namespace longstride {

struct PreparedShard {
  std::vector<std::vector<std::uint32_t>> documents;
  std::vector<std::uint8_t> mask = {};  // one of the two, or neither
  std::vector<float> weights = {};
};

class PreparedDirectory {
 public:
  explicit PreparedDirectory(std::filesystem::path path, int token_bytes = 2,
                             std::int64_t vocabulary = 100)
      : path_(std::move(path)) {
    std::filesystem::create_directories(path_);
    json = {{"format", "longstride data"}, {"version", 1},     {"token_bytes", token_bytes},
            {"vocabulary", vocabulary},    {"targets", "all"}, {"splits", OrderedJson::object()},
            {"made_by", "longstride 1"}};
  }

  PreparedDirectory& add(const std::string& split, const std::vector<PreparedShard>& shards) {
    OrderedJson& s = json["splits"][split];
    s = {{"documents", 0}, {"tokens", 0}, {"targets", 0}, {"shards", OrderedJson::array()}};
    for (std::size_t i = 0; i < shards.size(); ++i) {
      OrderedJson one = shard(fmt::format("{}-{:05}", split, i), shards[i]);
      for (const char* key : {"documents", "tokens"})
        s[key] = s[key].get<std::int64_t>() + one[key].get<std::int64_t>();
      s["shards"].push_back(std::move(one));
    }
    return *this;
  }
  const std::filesystem::path& write() const {
    write_file_atomic(path_ / "manifest.json", json.dump(2));
    return path_;
  }

  OrderedJson json;

 private:
  OrderedJson shard(const std::string& name, const PreparedShard& shard) {
    std::string tokens, index;
    const auto put = [](std::string& out, std::uint64_t value, std::size_t bytes) {
      out.append(reinterpret_cast<const char*>(&value), bytes);
    };
    std::uint64_t at = 0;
    const auto width = json["token_bytes"].get<std::size_t>();
    for (const auto& document : shard.documents) {
      put(index, at, 8);
      for (const std::uint32_t token : document) put(tokens, token, width);
      at += document.size();
    }
    put(index, at, 8);
    OrderedJson files;
    files["tokens"] = file(name + ".tokens", tokens);
    files["index"] = file(name + ".index", index);
    if (!shard.mask.empty()) {
      json["targets"] = "mask";
      files["mask"] = file(name + ".mask", std::string(shard.mask.begin(), shard.mask.end()));
    }
    if (!shard.weights.empty()) {
      json["targets"] = "weights";
      files["weights"] =
          file(name + ".weights", std::string(reinterpret_cast<const char*>(shard.weights.data()),
                                              shard.weights.size() * sizeof(float)));
    }
    return {{"name", name},
            {"documents", shard.documents.size()},
            {"tokens", at},
            {"targets", at - shard.documents.size()},
            {"files", std::move(files)}};
  }
  OrderedJson file(const std::string& name, const std::string& bytes) const {
    write_file_atomic(path_ / name, bytes);
    return {{"bytes", bytes.size()}, {"xxh3", fmt::format("{:016x}", checksum_of_text(bytes))}};
  }

  std::filesystem::path path_;
};

}  // namespace longstride
