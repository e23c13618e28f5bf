#include "data/corpus_digest.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "data/data_file.h"

namespace longstride {

std::string corpus_digest(const Corpus& corpus) {
  constexpr std::int64_t kPieces = 64, kPieceTokens = 1024;
  std::string seen;
  const auto add = [&](const auto* values, std::size_t count) {
    seen.append(reinterpret_cast<const char*>(values), count * sizeof(*values));
  };
  const std::int64_t tokens = corpus.tokens(), length = std::min(tokens, kPieceTokens);
  add(&tokens, 1);
  std::vector<std::int32_t> values(static_cast<std::size_t>(length));
  std::vector<std::uint8_t> mask(values.size());
  std::vector<float> weights(corpus.has_weights() ? values.size() : 0);
  for (std::int64_t piece = 0; piece < kPieces; ++piece) {
    // In this order, so that the product does not overflow.
    const std::int64_t rest = tokens - length, begin = rest / (kPieces - 1) * piece +
                                                       rest % (kPieces - 1) * piece / (kPieces - 1);
    try {
      corpus.read(begin, values);
      add(values.data(), values.size());
    } catch (const FileChanged&) {
      throw;
    } catch (const Error&) {  // an invalid token is reported when a step reads it
      seen += "broken";
    }
    corpus.read_mask(begin, mask);
    add(mask.data(), mask.size());
    if (corpus.has_weights()) {
      corpus.read_weights(begin, weights);
      add(weights.data(), weights.size());
    }
    for (std::int64_t at = begin; at < begin + length;) {
      at = corpus.document_end(at, begin + length);
      add(&at, 1);
    }
  }
  return fmt::format("{:016x}", checksum_of_text(seen));
}

}  // namespace longstride
