#include "schedule/layout.h"

#include <gtest/gtest.h>

#include <limits>

#include "base/error.h"
#include "tests/data/temp_directory.h"
#include "tests/schedule/random_layout.h"

namespace longstride {
namespace {

using testing::random_layout;
using testing::random_window;

std::string error_in(const SequenceLayout& layout) {
  return error_of([&] { layout.validate(); });
}

TEST(SequenceLayout, AcceptsWhatFits) {
  EXPECT_NO_THROW((SequenceLayout{1, 128, 128, {0}}.validate()));
  EXPECT_NO_THROW((SequenceLayout{1000, 256, 128, {0, 1, 999}}.validate()));
}

TEST(SequenceLayout, RefusesNumbersThatDoNot) {
  EXPECT_TRUE(says(error_in({0, 128, 128, {0}}), {"0 tokens", "at least one"}));
  EXPECT_TRUE(says(error_in({-5, 128, 128, {0}}), {"-5 tokens"}));
  EXPECT_TRUE(says(error_in({10, 128, 0, {0}}), {"page of 0 tokens"}));
  EXPECT_TRUE(says(error_in({10, 0, 128, {0}}), {"chunk of 0 tokens", "e.g. 128"}));
  EXPECT_TRUE(says(error_in({10, -128, 128, {0}}), {"chunk of -128 tokens", "e.g. 128"}));
  EXPECT_TRUE(says(error_in({10, 1000, 128, {0}}),
                   {"1000 tokens is not a multiple of the page of 128", "e.g. 896"}));
}

TEST(SequenceLayout, RefusesDocumentsOutOfOrder) {
  for (const std::vector<std::int64_t>& starts : std::vector<std::vector<std::int64_t>>{
           {}, {1}, {0, 0}, {0, 5, 3}, {0, 5, 5}, {0, 10}, {-1, 0}})
    EXPECT_THROW((SequenceLayout{10, 4, 4, starts}.validate()), InternalError);
}

TEST(SequenceLayout, CutsIntoChunksAndPages) {
  const SequenceLayout layout{21, 8, 4, {0}};
  EXPECT_EQ(layout.chunks(), 3);
  EXPECT_EQ(layout.pages(), 6);
  EXPECT_EQ(layout.chunk_begin(2), 16);
  EXPECT_EQ(layout.chunk_size(1), 8);
  EXPECT_EQ(layout.chunk_size(2), 5);
  EXPECT_EQ(layout.chunk_pages(0), (PageRun{0, 2}));
  EXPECT_EQ(layout.chunk_pages(2), (PageRun{4, 6}));
}

TEST(SequenceLayout, AChunkMayBeLargerThanTheContext) {
  const std::int64_t most = std::numeric_limits<std::int64_t>::max() / 128 * 128;
  for (const std::int64_t chunk : {std::int64_t{1024}, most}) {
    const SequenceLayout layout{200, chunk, 128, {0}};
    layout.validate();
    EXPECT_EQ(layout.chunks(), 1);
    EXPECT_EQ(layout.chunk_size(0), 200);
    EXPECT_EQ(layout.chunk_pages(0), (PageRun{0, 2}));
  }
}

TEST(SequenceLayout, CountsPast32Bits) {
  const SequenceLayout layout{(std::int64_t{1} << 40) + 1, 4096, 128, {0, std::int64_t{1} << 39}};
  EXPECT_EQ(layout.chunks(), (std::int64_t{1} << 28) + 1);
  EXPECT_EQ(layout.chunk_begin(layout.chunks() - 1), std::int64_t{1} << 40);
  EXPECT_EQ(layout.chunk_size(layout.chunks() - 1), 1);
  EXPECT_EQ(layout.first_visible(std::int64_t{1} << 40, 0), std::int64_t{1} << 39);
  EXPECT_EQ(layout.first_visible(std::int64_t{1} << 40, 100), (std::int64_t{1} << 40) - 99);
}

TEST(SequenceLayout, DocumentsAndWindows) {
  const SequenceLayout layout{20, 8, 4, {0, 5, 6}};
  EXPECT_EQ(layout.document_start(0), 0);
  EXPECT_EQ(layout.document_start(4), 0);
  EXPECT_EQ(layout.document_start(5), 5);
  EXPECT_EQ(layout.document_start(19), 6);
  EXPECT_EQ(layout.first_visible(19, 0), 6);
  EXPECT_EQ(layout.first_visible(19, 1), 19);  // only itself
  EXPECT_EQ(layout.first_visible(19, 5), 15);
  EXPECT_EQ(layout.first_visible(7, 5), 6);  // the document ends before the window
  EXPECT_EQ(layout.visited_pages(2, 0), (PageRun{1, 5}));
  EXPECT_EQ(layout.visited_pages(2, 3), (PageRun{3, 5}));
}

TEST(SequenceLayout, PropertiesOfRandomLayouts) {
  Random random(21);
  for (int i = 0; i < 500; ++i) {
    const SequenceLayout layout = random_layout(random);
    const std::int64_t window = random_window(random), P = layout.page_tokens;
    layout.validate();
    std::int64_t tokens = 0, pages = 0, before = 0;
    for (std::int64_t c = 0; c < layout.chunks(); ++c) {
      ASSERT_EQ(layout.chunk_begin(c), tokens);
      ASSERT_EQ(layout.chunk_pages(c).begin, pages);
      ASSERT_GE(layout.chunk_size(c), 1);
      tokens += layout.chunk_size(c);
      pages = layout.chunk_pages(c).end;
      const PageRun visited = layout.visited_pages(c, window);
      ASSERT_EQ(visited.end, pages);
      std::int64_t first = tokens;
      for (std::int64_t t = layout.chunk_begin(c); t < tokens; ++t) {
        const std::int64_t visible = layout.first_visible(t, window);
        ASSERT_GE(visible, before);  // never decreases
        ASSERT_GE(visible, layout.document_start(t));
        ASSERT_LE(visible, t);
        if (window > 0) {
          ASSERT_GT(visible + window, t);
        }
        before = visible;
        first = std::min(first, visible);
      }
      ASSERT_EQ(visited.begin, first / P);
    }
    ASSERT_EQ(tokens, layout.tokens);
    ASSERT_EQ(pages, layout.pages());
  }
}

}  // namespace
}  // namespace longstride
