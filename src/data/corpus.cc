#include "data/corpus.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "data/joined_corpus.h"
#include "data/manifest.h"
#include "data/megatron.h"
#include "data/prepared.h"
#include "data/text_files.h"
#include "data/token_file.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;

// The settings that are given and say how to read a file, by name.
std::vector<const char*> given_keys(const CorpusOptions& options) {
  std::vector<const char*> keys;
  if (!options.shared_format && !options.format.empty()) keys.push_back(options.keys.format);
  if (!options.shared_format && options.document_token) keys.push_back(options.keys.document_token);
  if (!options.document_index.empty()) keys.push_back(options.keys.document_index);
  if (!options.loss_mask.empty()) keys.push_back(options.keys.loss_mask);
  return keys;
}

void check_prepared(const CorpusOptions& options, const fs::path& path, bool all) {
  const auto refuse = [&](const std::string& key) {
    throw Error(fmt::format("{} does not go with {}, whose {} says how to read it", key,
                            path.string(), kManifestFile),
                fmt::format("leave {} out", key));
  };
  const std::vector<const char*> given = given_keys(options);
  if (all && !given.empty()) refuse(given.front());
  if (!options.document_index.empty()) refuse(options.keys.document_index);
  if (!options.loss_mask.empty()) refuse(options.keys.loss_mask);
  if (!all && options.format == "text")
    throw Error(
        fmt::format("{} is \"text\", and {} is prepared data", options.keys.format, path.string()),
        "text and tokens cannot be joined: name one kind");
}

void check_text(const CorpusOptions& options) {
  if (options.document_token || !options.document_index.empty() || !options.loss_mask.empty())
    throw Error("text takes no document token, document index or loss mask",
                "each text file is one document; for more, give tokens as u32 or u16");
}

std::shared_ptr<const Corpus> open_file(const fs::path& path, const CorpusOptions& options) {
  const std::string& format = options.format;
  if (format == "megatron") {
    const char* key = options.document_token            ? options.keys.document_token
                      : !options.document_index.empty() ? options.keys.document_index
                                                        : nullptr;
    if (key != nullptr)
      throw Error(fmt::format("{} does not go with {} = \"megatron\"", key, options.keys.format),
                  "the .idx file says where documents begin: leave it out");
    return open_megatron(path, options.loss_mask);
  }
  if (!format.empty() && format != "u32" && format != "u16")
    throw Error(fmt::format("unknown data format '{}'", format),
                "the formats are u32, u16, text and megatron");
  std::error_code none;
  if (fs::is_directory(path, none))
    throw Error(fmt::format("{}: not a regular file, but a directory without a {}", path.string(),
                            kManifestFile),
                fmt::format("name a file of tokens or a directory that `longstride prepare` wrote, "
                            "or set {} to \"text\" for a directory of text",
                            options.keys.format));
  return std::make_shared<TokenFile>(
      path, TokenFileOptions{.type = format == "u16" ? TokenType::kU16 : TokenType::kU32,
                             .document_token = options.document_token,
                             .document_index = options.document_index,
                             .loss_mask = options.loss_mask});
}

}  // namespace

void Corpus::read(std::int64_t begin, std::span<std::int32_t> out) const {
  read_values(begin, {reinterpret_cast<std::uint32_t*>(out.data()), out.size()});
  const auto bad = std::find_if(out.begin(), out.end(), [](std::int32_t x) { return x < 0; });
  if (bad != out.end())
    throw Error(fmt::format("{} has the value {}, which no vocabulary holds",
                            locate(begin + (bad - out.begin())), static_cast<std::uint32_t>(*bad)),
                "check data.format: the file may hold 16-bit tokens, or none at all");
}

void Corpus::read_weights(std::int64_t begin, std::span<float> out) const {
  std::vector<std::uint8_t> mask(out.size());
  read_mask(begin, mask);
  std::copy(mask.begin(), mask.end(), out.begin());
}

std::vector<std::shared_ptr<const Corpus>> open_sources(const CorpusOptions& options) {
  if (options.paths.empty()) throw Error("no data file is given", "set data.path");
  // With "text", a manifest.json that is not ours is a text like others.
  const bool text = options.format == "text";
  std::vector<bool> prepared;
  for (const fs::path& path : options.paths) prepared.push_back(is_prepared(path, !text));
  const bool all = std::ranges::all_of(prepared, [](bool one) { return one; });
  if (options.paths.size() > 1 && (!options.document_index.empty() || !options.loss_mask.empty()))
    throw Error("a document index or a loss mask belongs to one token file, but several are given",
                "join the token files into one");
  if (text) check_text(options);
  std::vector<std::shared_ptr<const Corpus>> sources;
  for (std::size_t i = 0; i < options.paths.size(); ++i) {
    const fs::path& path = options.paths[i];
    if (prepared[i]) {
      check_prepared(options, path, all);
      sources.push_back(open_prepared(path, options.split));
    } else if (text) {
      sources.push_back(std::make_shared<TextFiles>(std::vector{path}, options.outputs));
    } else {
      sources.push_back(open_file(path, options));
    }
  }
  return sources;
}

std::shared_ptr<const Corpus> join_sources(std::vector<std::shared_ptr<const Corpus>> sources) {
  if (sources.size() == 1) return std::move(sources.front());
  return std::make_shared<JoinedCorpus>(std::move(sources));
}

std::shared_ptr<const Corpus> open_corpus(const CorpusOptions& options) {
  const auto is_ours = [](const fs::path& path) { return is_prepared(path, false); };
  if (options.format != "text" || options.paths.empty() ||
      std::ranges::any_of(options.paths, is_ours))
    return join_sources(open_sources(options));
  check_text(options);
  return std::make_shared<TextFiles>(options.paths, options.outputs);
}

}  // namespace longstride
