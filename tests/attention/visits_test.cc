#include "attention/visits.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <vector>

#include "tests/schedule/random_layout.h"

namespace longstride {
namespace {

using testing::random_layout;
using testing::random_window;

// Query page -> KV pages and back, from the definition: a page is visited if any query sees any of
// its keys.
struct Expected {
  std::vector<std::vector<std::int32_t>> visits;
  std::map<std::int32_t, std::vector<std::int32_t>> back;
};

Expected brute_force(const SequenceLayout& layout, std::int64_t chunk, std::int64_t window) {
  const std::int64_t P = layout.page_tokens, begin = layout.chunk_begin(chunk);
  const std::int64_t end = begin + layout.chunk_size(chunk);
  std::vector<std::set<std::int32_t>> visits(static_cast<std::size_t>((end - begin + P - 1) / P));
  const auto document_of = [&](std::int64_t t) {
    std::int64_t document = 0;
    for (const std::int64_t start : layout.document_starts) document += start <= t;
    return document;
  };
  for (std::int64_t t = begin; t < end; ++t)
    for (std::int64_t s = 0; s <= t; ++s)
      if (document_of(s) == document_of(t) && (window == 0 || t - s < window))
        visits[static_cast<std::size_t>((t - begin) / P)].insert(static_cast<std::int32_t>(s / P));
  Expected expected;
  for (std::size_t q = 0; q < visits.size(); ++q) {
    expected.visits.emplace_back(visits[q].begin(), visits[q].end());
    for (const std::int32_t page : visits[q])
      expected.back[page].push_back(static_cast<std::int32_t>(q));
  }
  return expected;
}

void expect_equal(const VisitsView& view, const Expected& expected) {
  ASSERT_EQ(view.query_pages, static_cast<std::int64_t>(expected.visits.size()));
  ASSERT_EQ(view.offsets[0], 0);
  for (std::int64_t q = 0; q < view.query_pages; ++q)
    ASSERT_EQ(std::vector(view.kv_pages + view.offsets[q], view.kv_pages + view.offsets[q + 1]),
              expected.visits[static_cast<std::size_t>(q)]);
  ASSERT_EQ(view.visited_pages, static_cast<std::int64_t>(expected.back.size()));
  ASSERT_EQ(view.back_offsets[0], 0);
  auto entry = expected.back.begin();
  for (std::int64_t i = 0; i < view.visited_pages; ++i, ++entry) {
    ASSERT_EQ(view.visited[i], entry->first);
    ASSERT_EQ(std::vector(view.back_queries + view.back_offsets[i],
                          view.back_queries + view.back_offsets[i + 1]),
              entry->second);
  }
}

TEST(VisitLists, AreWhatTheDefinitionSays) {
  Random random(51);
  VisitLists lists;  // reused, as in a run
  for (int i = 0; i < 600; ++i) {
    const SequenceLayout layout = random_layout(random);
    const std::int64_t window = random_window(random);
    for (std::int64_t chunk = 0; chunk < layout.chunks(); ++chunk) {
      SCOPED_TRACE("case " + std::to_string(i) + ", chunk " + std::to_string(chunk));
      lists.build(layout, chunk, window);
      const VisitsView view = lists.view();
      ASSERT_NO_FATAL_FAILURE(expect_equal(view, brute_force(layout, chunk, window)));
      ASSERT_EQ(view.chunk_begin, layout.chunk_begin(chunk));
      for (std::int64_t t = 0; t < layout.chunk_size(chunk); ++t) {
        ASSERT_EQ(view.first_visible[t], layout.first_visible(view.chunk_begin + t, window));
        if (t > 0) {
          ASSERT_GE(view.first_visible[t], view.first_visible[t - 1]);
        }
      }
    }
  }
}

TEST(VisitLists, ASmallCase) {
  VisitLists lists;
  lists.build({20, 8, 4, {0, 6}}, 1, 0);  // pages 2 and 3; the document begins in page 1
  const VisitsView view = lists.view();
  EXPECT_EQ(view.chunk_begin, 8);
  EXPECT_EQ(std::vector(view.offsets, view.offsets + 3), (std::vector<std::int64_t>{0, 2, 5}));
  EXPECT_EQ(std::vector(view.kv_pages, view.kv_pages + 5),
            (std::vector<std::int32_t>{1, 2, 1, 2, 3}));
  EXPECT_EQ(std::vector(view.visited, view.visited + 3), (std::vector<std::int32_t>{1, 2, 3}));
  EXPECT_EQ(std::vector(view.back_offsets, view.back_offsets + 4),
            (std::vector<std::int64_t>{0, 2, 4, 5}));
  EXPECT_EQ(std::vector(view.back_queries, view.back_queries + 5),
            (std::vector<std::int32_t>{0, 1, 0, 1, 1}));
  EXPECT_EQ(std::vector(view.first_visible, view.first_visible + 8),
            std::vector<std::int64_t>(8, 6));
}

// A vector that grows moves its elements: after `reserve` the addresses stay the same for every
// chunk of every layout that fits.
TEST(VisitLists, BuildingAllocatesNothingAfterReserve) {
  const auto addresses = [](const VisitLists& lists) {
    const VisitsView v = lists.view();
    return std::vector<const void*>{v.offsets, v.kv_pages,     v.first_visible,
                                    v.visited, v.back_offsets, v.back_queries};
  };
  Random random(52);
  for (int i = 0; i < 200; ++i) {
    SequenceLayout layout = random_layout(random);
    VisitLists lists;
    lists.reserve({layout.tokens, layout.chunk_tokens, layout.page_tokens, {0}});
    const auto reserved = addresses(lists);
    while (layout.tokens > 0) {
      for (std::int64_t chunk = 0; chunk < layout.chunks(); ++chunk)
        for (const std::int64_t window : {std::int64_t{0}, std::int64_t{7}}) {
          lists.build(layout, chunk, window);
          ASSERT_EQ(addresses(lists), reserved) << "case " << i << ", chunk " << chunk;
        }
      layout.tokens /= 2;
      layout.document_starts = {0};
    }
  }
}

}  // namespace
}  // namespace longstride
