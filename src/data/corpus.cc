#include "data/corpus.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "data/joined_corpus.h"
#include "data/text_files.h"
#include "data/token_file.h"

namespace longstride {
namespace {

std::unique_ptr<Corpus> open_text(const CorpusOptions& options) {
  if (options.document_token || !options.document_index.empty() || !options.loss_mask.empty())
    throw Error("text takes no document token, document index or loss mask",
                "each text file is one document; for more, give tokens as u32 or u16");
  return std::make_unique<TextFiles>(options.paths, options.outputs);
}

std::unique_ptr<Corpus> open_tokens(const CorpusOptions& options, TokenWidth width) {
  if (options.paths.size() > 1 && (!options.document_index.empty() || !options.loss_mask.empty()))
    throw Error("a document index or a loss mask belongs to one token file, but several are given",
                "join the token files into one");
  std::vector<std::unique_ptr<Corpus>> parts;
  for (const auto& path : options.paths)
    parts.push_back(
        std::make_unique<TokenFile>(path, TokenFileOptions{.width = width,
                                                           .document_token = options.document_token,
                                                           .document_index = options.document_index,
                                                           .loss_mask = options.loss_mask}));
  if (parts.size() == 1) return std::move(parts.front());
  return std::make_unique<JoinedCorpus>(std::move(parts));
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

std::unique_ptr<Corpus> open_corpus(const CorpusOptions& options) {
  if (options.paths.empty()) throw Error("no data file is given", "set data.path");
  if (options.format == "text") return open_text(options);
  if (options.format == "u32") return open_tokens(options, TokenWidth::kU32);
  if (options.format == "u16") return open_tokens(options, TokenWidth::kU16);
  throw Error(fmt::format("unknown data format '{}'", options.format),
              "the formats are u32, u16 and text");
}

}  // namespace longstride
