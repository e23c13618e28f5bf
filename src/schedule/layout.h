// How one sequence is divided into chunks, pages and documents. Plain data.
#pragma once

#include <cstdint>
#include <vector>

#include "schedule/page_set.h"
#include "tensor/key_segments.h"

namespace longstride {

struct SequenceLayout {
  std::int64_t tokens = 0;
  std::int64_t chunk_tokens = 0;  // a multiple of page_tokens; only the last chunk may be shorter
  std::int64_t page_tokens = 0;
  std::vector<std::int64_t> document_starts = {0};  // ascending, first 0

  // Throws Error if the numbers are inconsistent.
  void validate() const;

  std::int64_t chunks() const { return tokens / chunk_tokens + (tokens % chunk_tokens != 0); }
  std::int64_t pages() const { return (tokens + page_tokens - 1) / page_tokens; }
  std::int64_t chunk_begin(std::int64_t chunk) const { return chunk * chunk_tokens; }
  std::int64_t chunk_size(std::int64_t chunk) const;
  // Pages that hold the chunk's own tokens; no other chunk shares them.
  PageRun chunk_pages(std::int64_t chunk) const;
  // Start of the document that token t belongs to.
  std::int64_t document_start(std::int64_t t) const;
  // The number of the chunk's tokens before the first document that begins after the chunk's first
  // token; all of them if none does.
  std::int64_t tokens_before_documents(std::int64_t chunk) const;
  // The first key that query t sees; window 0 means all of its document. Never decreases with t.
  std::int64_t first_visible(std::int64_t t, std::int64_t window) const;
  // The keys that the chunk's queries attend to in a layer with this window. A chunk that sees no
  // earlier keys and in which documents begin is not dense: its queries share no first key.
  ChunkKeys keys(std::int64_t chunk, std::int64_t window) const;
  // Pages that the chunk's queries visit in a layer with this window, its own included.
  PageRun visited_pages(std::int64_t chunk, std::int64_t window) const;
};

}  // namespace longstride
