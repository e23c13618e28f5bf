#include "tensor/segment_visits.h"

#include <gtest/gtest.h>

#include <optional>

#include "attention/visits.h"
#include "tests/schedule/random_layout.h"

namespace longstride {
namespace {

constexpr std::int64_t kPage = 4, kChunk = 16, kBegin = 3 * kChunk, kTokens = kBegin + 14;

VisitsView visits_of(VisitLists& lists, std::vector<std::int64_t> starts, std::int64_t window = 0) {
  const SequenceLayout layout{kTokens, kChunk, kPage, std::move(starts)};
  lists.build(layout, layout.chunks() - 1, window);
  return lists.view();
}

// Nothing if they are not dense.
std::optional<DenseKeys> dense(std::vector<std::int64_t> starts, std::int64_t window = 0) {
  VisitLists lists;
  const VisitsView visits = visits_of(lists, std::move(starts), window);
  if (visits.kind != AttentionKind::kDense) return std::nullopt;
  return visits.dense;
}

TEST(AttentionKinds, AllFromOneKeyOn) {
  for (const std::int64_t start : {1, 5, 47, 48})
    EXPECT_EQ(dense({0, start}), (DenseKeys{start, kTokens - kBegin}));
}

TEST(AttentionKinds, TheFirstQueriesWhereDocumentsBegin) {
  for (const std::int64_t within : {49, 52, 61})
    EXPECT_EQ(dense({0, 5, within}), (DenseKeys{5, within - kBegin}));
  EXPECT_EQ(dense({0, 50, 53, 60})->queries, 2);
  EXPECT_FALSE(dense({0, kBegin, 53}));  // nothing before the chunk is attended to
}

TEST(AttentionKinds, WindowsAreDenseOnlyWhereTheyHideNothing) {
  EXPECT_FALSE(dense({0}, 20));
  EXPECT_FALSE(dense({0, 53}, 20));
  EXPECT_FALSE(dense({0}, 2));
  EXPECT_EQ(dense({0}, 100)->first, 0);
}

// The kind agrees with the lists, token by token.
TEST(AttentionKinds, AreThoseOfTheLists) {
  Random random(4);
  VisitLists lists;
  for (int i = 0; i < 2000; ++i) {
    const SequenceLayout layout = testing::random_layout(random);
    const std::int64_t window = testing::random_window(random),
                       chunk = testing::pick(random, 0, layout.chunks() - 1),
                       begin = layout.chunk_begin(chunk), T = layout.chunk_size(chunk);
    lists.build(layout, chunk, window);
    const VisitsView v = lists.view();
    if (v.kind != AttentionKind::kDense) continue;
    EXPECT_GT(v.dense.queries, 0);
    for (std::int64_t t = 0; t < T; ++t) {
      if (t < v.dense.queries)
        EXPECT_EQ(v.first_visible[t], v.dense.first);
      else
        EXPECT_GE(v.first_visible[t], begin);
    }
  }
}

template <class T>
std::vector<T> list(const T* at, std::int64_t count) {
  return {at, at + count};
}

// As if the chunk began with a document.
TEST(SegmentVisits, OfTheOwnKeysAreThoseOfADocumentThatBeginsWithTheChunk) {
  SegmentVisits own;
  for (const std::vector<std::int64_t>& within :
       {std::vector<std::int64_t>{}, {49}, {52}, {53, 54, 60}, {61}}) {
    std::vector<std::int64_t> starts{0, 5}, cut{0, 5, kBegin};
    starts.insert(starts.end(), within.begin(), within.end());
    cut.insert(cut.end(), within.begin(), within.end());
    VisitLists whole, expected;
    own.build_own(visits_of(whole, starts), kTokens - kBegin, kPage);
    const VisitsView a = own.view(), b = visits_of(expected, cut);
    EXPECT_EQ(a.chunk_begin, b.chunk_begin);
    ASSERT_EQ(a.query_pages, b.query_pages);
    ASSERT_EQ(a.visited_pages, b.visited_pages);
    EXPECT_EQ(list(a.offsets, a.query_pages + 1), list(b.offsets, b.query_pages + 1));
    EXPECT_EQ(list(a.kv_pages, a.offsets[a.query_pages]),
              list(b.kv_pages, b.offsets[b.query_pages]));
    EXPECT_EQ(list(a.first_visible, kTokens - kBegin), list(b.first_visible, kTokens - kBegin));
    EXPECT_EQ(list(a.visited, a.visited_pages), list(b.visited, b.visited_pages));
    EXPECT_EQ(list(a.back_offsets, a.visited_pages + 1), list(b.back_offsets, b.visited_pages + 1));
    EXPECT_EQ(list(a.back_queries, a.back_offsets[a.visited_pages]),
              list(b.back_queries, b.back_offsets[b.visited_pages]));
  }
}

TEST(SegmentVisits, OfKeysBeforeTheChunkAreOfTheQueriesThatSeeThem) {
  const std::int64_t T = kTokens - kBegin, end = kBegin - kPage;
  SegmentVisits before;
  // All queries see keys from 5 on; then only those before the document within the chunk.
  for (const std::int64_t queries : {T, kPage + 1, std::int64_t{1}}) {
    std::vector<std::int64_t> starts{0, 5};
    if (queries < T) starts.push_back(kBegin + queries);
    VisitLists whole;
    const VisitsView all = visits_of(whole, starts);
    before.build_before(all, T, kPage, end);
    const VisitsView v = before.view();
    std::vector<std::int32_t> pages;
    for (std::int64_t p = 5 / kPage; p < end / kPage; ++p)
      pages.push_back(static_cast<std::int32_t>(p));
    EXPECT_EQ(v.chunk_begin, kBegin);
    EXPECT_EQ(list(v.visited, v.visited_pages), pages);
    ASSERT_EQ(v.query_pages, all.query_pages);
    for (std::int64_t t = 0; t < T; ++t)
      EXPECT_EQ(v.first_visible[t], t < queries ? 5 : kBegin) << t;
    for (std::int64_t q = 0; q < v.query_pages; ++q)
      EXPECT_EQ(list(v.kv_pages + v.offsets[q], v.offsets[q + 1] - v.offsets[q]),
                q * kPage < queries ? pages : std::vector<std::int32_t>{})
          << q;
    for (std::int64_t i = 0; i < v.visited_pages; ++i) {
      const auto seeing =
          list(v.back_queries + v.back_offsets[i], v.back_offsets[i + 1] - v.back_offsets[i]);
      ASSERT_EQ(std::ssize(seeing), (queries + kPage - 1) / kPage);
      for (std::size_t q = 0; q < seeing.size(); ++q) EXPECT_EQ(seeing[q], q);
    }
  }
}

}  // namespace
}  // namespace longstride
