#include <set>

#include "tests/attention/parts_check.h"

namespace longstride {
namespace {

TEST(AttentionParts, TheSameBitsOnTheCpu) {
  const auto device = make_cpu_device();
  for (const std::int64_t page : {16, 24, 64})
    for (const std::int64_t start : {0, 1, 700}) {
      const SequenceLayout layout{
          page * 150 + 5, page * 7, page,
          start == 0 ? std::vector<std::int64_t>{0} : std::vector<std::int64_t>{0, start}};
      for (const DType gradient : {DType::kF32, DType::kBF16})
        PartsCheck(*device, {.layout = layout, .gradient = gradient}).run();
    }
}

TEST(AttentionParts, TheSameBitsWhereDocumentsBegin) {
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
        PartsCheck(*device, {.layout = layout, .gradient = start == 0 ? DType::kF32 : DType::kBF16})
            .run();
      }
    }
}

TEST(KeyParts, ChunksInWhichDocumentsBeginAreCutOnlyWhereTheyAreLong) {
  constexpr KeyCut kCut{.tokens = 64, .documents_apart = true};
  static_assert(cut_with_documents(kCut, 64) == KeyCut{});
  static_assert(cut_with_documents(kCut, 65) ==
                KeyCut{.tokens = 64, .own_apart = true, .documents_apart = true});
}

TEST(KeyParts, CoverEverythingOnce) {
  for (const KeyCut& cut :
       {KeyCut{}, KeyCut{.tokens = 64}, KeyCut{.tokens = 64, .own_apart = true},
        KeyCut{.tokens = 32, .from_first_page = true}, KeyCut{.tokens = 64, .even_tokens = 20},
        KeyCut{.tokens = 64, .own_apart = true, .even_tokens = 32}})
    for (const std::int64_t first : {0, 5, 63, 64, 200, 256})
      for (const std::int64_t tokens : {1, 40, 64}) {
        const std::int64_t chunk = 256;
        std::int64_t at = first;
        bool last = false;
        for_key_parts(first, chunk, tokens, 16, cut, [&](const KeyPart& part) {
          EXPECT_FALSE(last);
          EXPECT_EQ(part.begin, at);
          EXPECT_EQ(part.first, at == first);
          EXPECT_GT(part.end, part.begin);
          // The chunk's own keys are never cut.
          EXPECT_TRUE(part.end <= chunk || part.last);
          EXPECT_TRUE(!part.uneven || (part.first && part.end % 16 == 0 && part.end <= chunk));
          at = part.end;
          last = part.last;
          if (cut.own_apart && part.last) {
            EXPECT_EQ(part.begin, std::max(first, chunk));
          }
        });
        EXPECT_TRUE(last);
        EXPECT_EQ(at, chunk + tokens);
      }
}

// Wherever a document begins, a library that prepares for each length anew meets few of them.
TEST(KeyParts, OfDocumentsHaveFewLengths) {
  for (const bool own_apart : {false, true}) {
    const KeyCut cut{.tokens = 32'768, .own_apart = own_apart, .even_tokens = 1024};
    std::set<std::int64_t> lengths;
    for (std::int64_t first = 0; first < 100'000; first += 37)
      for_key_parts(first, 100 * 1024, 4096, 128, cut, [&](const KeyPart& part) {
        EXPECT_EQ(part.uneven, part.first && first % 1024 != 0);
        if (part.uneven)
          EXPECT_LT(part.end - part.begin, 1024);
        else
          lengths.insert(part.end - part.begin);
      });
    EXPECT_LE(lengths.size(), 36);
  }
}

}  // namespace
}  // namespace longstride
