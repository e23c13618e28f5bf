#include "schedule/layout.h"

#include <algorithm>

#include "base/error.h"

namespace longstride {

void SequenceLayout::validate() const {
  if (tokens < 1)
    throw Error(fmt::format("a sequence of {} tokens", tokens), "a context has at least one token");
  if (page_tokens < 1)
    throw Error(fmt::format("a page of {} tokens", page_tokens), "use 128 unless you know better");
  if (chunk_tokens < 1 || chunk_tokens % page_tokens != 0)
    throw Error(fmt::format("a chunk of {} tokens is not a multiple of the page of {}",
                            chunk_tokens, page_tokens),
                fmt::format("choose a multiple of {}, e.g. {}", page_tokens,
                            std::max<std::int64_t>(1, chunk_tokens / page_tokens) * page_tokens));
  LS_CHECK(!document_starts.empty() && document_starts.front() == 0, "documents start at 0");
  LS_CHECK(std::is_sorted(document_starts.begin(), document_starts.end(), std::less_equal<>()) &&
               document_starts.back() < tokens,
           "document starts ascend within the sequence");
}

std::int64_t SequenceLayout::chunk_size(std::int64_t chunk) const {
  return std::min(chunk_tokens, tokens - chunk_begin(chunk));
}

PageRun SequenceLayout::chunk_pages(std::int64_t chunk) const {
  const std::int64_t begin = chunk_begin(chunk) / page_tokens;
  return {begin, begin + (chunk_size(chunk) + page_tokens - 1) / page_tokens};
}

std::int64_t SequenceLayout::document_start(std::int64_t t) const {
  return *std::prev(std::upper_bound(document_starts.begin(), document_starts.end(), t));
}

std::int64_t SequenceLayout::tokens_before_documents(std::int64_t chunk) const {
  const std::int64_t begin = chunk_begin(chunk), size = chunk_size(chunk);
  const auto next = std::upper_bound(document_starts.begin(), document_starts.end(), begin);
  return next == document_starts.end() ? size : std::min(size, *next - begin);
}

std::int64_t SequenceLayout::first_visible(std::int64_t t, std::int64_t window) const {
  const std::int64_t start = document_start(t);
  return window == 0 ? start : std::max(start, t - window + 1);
}

ChunkKeys SequenceLayout::keys(std::int64_t chunk, std::int64_t window) const {
  const std::int64_t begin = chunk_begin(chunk), size = chunk_size(chunk),
                     first = first_visible(begin, window), same = tokens_before_documents(chunk);
  ChunkKeys keys{.first = first, .chunk_begin = begin, .tokens = size, .page_tokens = page_tokens};
  if (first_visible(begin + same - 1, window) == first && (same == size || first < begin)) {
    keys.kind = AttentionKind::kDense;
    keys.dense = {first, same};
  }
  return keys;
}

PageRun SequenceLayout::visited_pages(std::int64_t chunk, std::int64_t window) const {
  return {first_visible(chunk_begin(chunk), window) / page_tokens, chunk_pages(chunk).end};
}

}  // namespace longstride
