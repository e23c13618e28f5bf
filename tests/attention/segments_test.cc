#include <set>

#include "tests/attention/segments_check.h"

namespace longstride {
namespace {

TEST(AttentionSegments, TheSameBitsOnTheCpu) {
  const auto device = make_cpu_device();
  for (const std::int64_t page : {16, 24, 64})
    for (const std::int64_t start : {0, 1, 700}) {
      const SequenceLayout layout{
          page * 150 + 5, page * 7, page,
          start == 0 ? std::vector<std::int64_t>{0} : std::vector<std::int64_t>{0, start}};
      for (const DType gradient : {DType::kF32, DType::kBF16})
        SegmentsCheck(*device, {.layout = layout, .gradient = gradient}).run();
    }
}

TEST(AttentionSegments, TheSameBitsWhereDocumentsBegin) {
  const auto device = make_cpu_device();
  for (const std::int64_t page : {16, 24})
    for (const std::int64_t start : {0, 301}) {
      const std::int64_t chunk = page * 7, begin = 20 * chunk, tokens = begin + 5 * page + 3;
      // Two in the chunk; one from its second token on; one in its last.
      for (const std::vector<std::int64_t>& within :
           {std::vector<std::int64_t>{begin + page + 3, begin + page + 9},
            std::vector<std::int64_t>{begin + 1}, std::vector<std::int64_t>{tokens - 1}}) {
        SequenceLayout layout{tokens, chunk, page, {0}};
        if (start > 0) layout.document_starts.push_back(start);
        for (const std::int64_t at : within) layout.document_starts.push_back(at);
        SegmentsCheck(*device,
                      {.layout = layout, .gradient = start == 0 ? DType::kF32 : DType::kBF16})
            .run();
      }
    }
}

ChunkKeys dense_keys(std::int64_t first, std::int64_t chunk_begin, std::int64_t tokens,
                     std::int64_t page_tokens) {
  return {.kind = AttentionKind::kDense,
          .dense = {first, tokens},
          .first = first,
          .chunk_begin = chunk_begin,
          .tokens = tokens,
          .page_tokens = page_tokens};
}

TEST(KeySegments, ChunksInWhichDocumentsBeginAreCutOnlyWhereTheyAreLong) {
  constexpr KeyCut kCut{.tokens = 64, .documents_apart = true};
  for (const auto& [first, count] : {std::pair{232, 1}, {231, 2}}) {
    ChunkKeys keys = dense_keys(first, 256, 40, 8);
    keys.dense.queries = 10;
    EXPECT_EQ(cut_keys(keys, kCut).size(), count) << first;
  }
}

TEST(KeySegments, OnlyDenseAttentionIsCut) {
  ChunkKeys keys = dense_keys(0, 256, 40, 8);
  EXPECT_GT(cut_keys(keys, {.tokens = 64}).size(), 1);
  for (const AttentionKind kind : {AttentionKind::kWindow, AttentionKind::kSparse}) {
    keys.kind = kind;
    EXPECT_EQ(cut_keys(keys, {.tokens = 64}), (std::vector<KeySegment>{{0, 296, true, true}}));
  }
}

TEST(KeySegments, CoverEverythingOnce) {
  for (const KeyCut& cut :
       {KeyCut{}, KeyCut{.tokens = 64}, KeyCut{.tokens = 64, .own_apart = true},
        KeyCut{.tokens = 32, .from_first_page = true}, KeyCut{.tokens = 64, .even_tokens = 20},
        KeyCut{.tokens = 64, .own_apart = true, .even_tokens = 32}})
    for (const std::int64_t first : {0, 5, 63, 64, 200, 256})
      for (const std::int64_t tokens : {1, 40, 64}) {
        const std::int64_t chunk = 256;
        const ChunkKeys keys = dense_keys(first, chunk, tokens, 16);
        const std::vector<KeySegment> segments = cut_keys(keys, cut);
        EXPECT_NO_THROW(check_segments(segments, keys));
        EXPECT_TRUE(joined(segments).is_all());
        for (const KeySegment& s : segments) {
          // The chunk's own keys are never cut.
          EXPECT_TRUE(s.end <= chunk || s.last);
          EXPECT_TRUE(!s.uneven || (s.first && s.end % 16 == 0 && s.end <= chunk));
          if (cut.own_apart && s.last) {
            EXPECT_EQ(s.begin, std::max(first, chunk));
          }
        }
      }
}

TEST(KeySegments, WhatDoesNotCoverIsRefused) {
  const ChunkKeys keys = dense_keys(8, 64, 16, 8);
  const std::vector<KeySegment> good = cut_keys(keys, {.tokens = 32});
  ASSERT_EQ(good.size(), 3u);
  EXPECT_NO_THROW(check_segments(good, keys));
  EXPECT_NO_THROW(check_segments(std::span(good).subspan(1), keys));
  EXPECT_THROW(check_segments({}, keys), InternalError);
  for (int i = 0; i < 6; ++i) {
    std::vector<KeySegment> bad = good;
    if (i == 0) ++bad[1].begin;    // a gap
    if (i == 1) --bad[1].begin;    // an overlap
    if (i == 2) bad[0].begin = 0;  // keys that no query attends to
    if (i == 3) ++bad[2].end;
    if (i == 4) bad[0].first = false;
    if (i == 5) bad[2].last = false;
    EXPECT_THROW(check_segments(bad, keys), InternalError) << i;
  }
}

// Wherever a document begins, a library that prepares for each new length meets few lengths.
TEST(KeySegments, OfDocumentsHaveFewLengths) {
  for (const bool own_apart : {false, true}) {
    const KeyCut cut{.tokens = 32'768, .own_apart = own_apart, .even_tokens = 1024};
    std::set<std::int64_t> lengths;
    for (std::int64_t first = 0; first < 100'000; first += 37)
      for (const KeySegment& s : cut_keys(dense_keys(first, 100 * 1024, 4096, 128), cut)) {
        EXPECT_EQ(s.uneven, s.first && first % 1024 != 0);
        if (s.uneven)
          EXPECT_LT(s.end - s.begin, 1024);
        else
          lengths.insert(s.end - s.begin);
      }
    EXPECT_LE(lengths.size(), 36);
  }
}

}  // namespace
}  // namespace longstride
