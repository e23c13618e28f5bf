#include "data/corpus.h"

#include <gtest/gtest.h>

#include "data/joined_corpus.h"
#include "data/text_files.h"
#include "data/token_file.h"
#include "tests/data/temp_directory.h"

namespace longstride {
namespace {

using Tokens = std::vector<std::int32_t>;

Tokens read_all(const Corpus& corpus) {
  Tokens out(static_cast<std::size_t>(corpus.tokens()));
  corpus.read(0, out);
  return out;
}

// The starts of all documents, found by walking from end to end.
std::vector<std::int64_t> starts_of(const Corpus& corpus) {
  std::vector<std::int64_t> starts;
  for (std::int64_t at = 0; at < corpus.tokens(); at = corpus.document_end(at, corpus.tokens()))
    starts.push_back(at);
  return starts;
}

class CorpusTest : public ::testing::Test {
 protected:
  std::filesystem::path u32(const std::vector<std::uint32_t>& v,
                            const std::string& name = "t.u32") {
    return temp_.write(name, v);
  }
  std::filesystem::path index(const std::vector<std::uint64_t>& v) {
    return temp_.write("t.index", v);
  }
  TempDirectory temp_;
};

TEST_F(CorpusTest, ReadsU32) {
  const TokenFile file(u32({5, 0, 70000, 2147483647}));
  EXPECT_EQ(file.tokens(), 4);
  EXPECT_EQ(read_all(file), (Tokens{5, 0, 70000, 2147483647}));
  Tokens middle(2);
  file.read(1, middle);
  EXPECT_EQ(middle, (Tokens{0, 70000}));
}

TEST_F(CorpusTest, ReadsU16) {
  const auto path = temp_.write("t.u16", std::vector<std::uint16_t>{1, 65535, 3});
  const TokenFile file(path, {.type = TokenType::kU16});
  EXPECT_EQ(read_all(file), (Tokens{1, 65535, 3}));
}

TEST_F(CorpusTest, WithoutBoundariesAFileIsOneDocument) {
  const TokenFile file(u32({1, 2, 3}));
  EXPECT_EQ(starts_of(file), (std::vector<std::int64_t>{0}));
  EXPECT_EQ(file.document_end(1, 2), 2);
}

TEST_F(CorpusTest, DocumentTokenBelongsToTheDocumentItEnds) {
  const TokenFile file(u32({1, 2, 9, 3, 9, 9, 4}), {.document_token = 9});
  EXPECT_EQ(starts_of(file), (std::vector<std::int64_t>{0, 3, 5, 6}));
  EXPECT_EQ(file.document_end(2, 7), 3);
  EXPECT_EQ(file.document_end(0, 2), 2);
  EXPECT_EQ(file.document_end(0, 3), 3);
}

TEST_F(CorpusTest, DocumentTokenIsFoundFarAhead) {
  // Longer than the blocks in which the file is searched, at various offsets within a block.
  for (std::int64_t at : {0, 255, 256, 257, 511, 600, 1023}) {
    std::vector<std::uint32_t> tokens(1024, 7);
    tokens[static_cast<std::size_t>(at)] = 9;
    const TokenFile file(u32(tokens), {.document_token = 9});
    EXPECT_EQ(file.document_end(0, 1024), at + 1);
    const std::vector<std::uint16_t> narrow(tokens.begin(), tokens.end());
    const TokenFile file16(temp_.write("t.u16", narrow),
                           {.type = TokenType::kU16, .document_token = 9});
    EXPECT_EQ(file16.document_end(0, 1024), at + 1);
  }
}

// document_ends of a range agrees with a walk from end to end.
TEST_F(CorpusTest, DocumentEnds) {
  std::vector<std::uint32_t> tokens(40'000, 7);
  for (const std::size_t at : {0, 255, 256, 300, 16383, 16384, 32767, 39998}) tokens[at] = 9;
  const auto path = u32(tokens);
  std::vector<std::shared_ptr<const Corpus>> corpora;
  corpora.push_back(open_corpus({.paths = {path}, .document_token = 9}));
  corpora.push_back(open_corpus({.paths = {path}, .document_index = index({0, 1, 256, 16384})}));
  corpora.push_back(open_corpus({.paths = {path}}));
  corpora.push_back(open_corpus({.paths = {path, path, path}, .document_token = 9}));
  corpora.push_back(open_corpus({.paths = {path, path}, .format = "text"}));
  for (const auto& corpus : corpora)
    for (const std::int64_t begin : {0, 1, 256, 16384, 39999})
      for (const std::int64_t end :
           {40'000LL, 39'999LL, static_cast<long long>(corpus->tokens())}) {
        if (begin >= end) continue;
        std::vector<std::int64_t> expected, ends = {-1}, from_values;
        for (std::int64_t at = begin; at < end; at = expected.back())
          expected.push_back(corpus->document_end(at, end));
        if (end < corpus->tokens() && corpus->document_end(end - 1, end + 1) > end)
          expected.pop_back();  // the document continues
        corpus->document_ends(begin, end, {}, ends);
        EXPECT_EQ(ends.front(), -1) << "what was there stays";
        EXPECT_EQ(std::vector(ends.begin() + 1, ends.end()), expected) << begin << " " << end;
        std::vector<std::uint32_t> values(static_cast<std::size_t>(end - begin));
        corpus->read_values(begin, values);
        corpus->document_ends(begin, end, values, from_values);
        EXPECT_EQ(from_values, expected);
      }
}

TEST_F(CorpusTest, AFileCutShortIsNoticed) {
  const auto path = u32(std::vector<std::uint32_t>(100'000, 1));
  const auto mask = temp_.write("t.mask", std::vector<std::uint8_t>(100'000, 1));
  const TokenFile file(path, {.document_token = 9, .loss_mask = mask});
  std::filesystem::resize_file(path, 40);
  Tokens out(10);
  file.read(0, out);
  EXPECT_EQ(out, Tokens(10, 1)) << "what is there can still be read";
  const std::string changed = "t.u32 has changed while it was in use";
  EXPECT_TRUE(says(error_of([&] { file.read(5, out); }), {changed}));
  EXPECT_TRUE(says(error_of([&] { file.document_end(0, 100'000); }), {changed}));
  std::filesystem::resize_file(mask, 0);
  std::vector<std::uint8_t> bytes(3);
  EXPECT_TRUE(says(error_of([&] { file.read_mask(0, bytes); }), {"t.mask has changed"}));
}

TEST_F(CorpusTest, DocumentIndex) {
  const auto path = u32({0, 1, 2, 3, 4, 5, 6});
  const TokenFile file(path, {.document_index = index({0, 2, 6})});
  EXPECT_EQ(starts_of(file), (std::vector<std::int64_t>{0, 2, 6}));
  EXPECT_EQ(file.document_end(3, 5), 5);
  EXPECT_EQ(file.document_end(5, 7), 6);
  EXPECT_EQ(file.document_end(1, 7), 2);
  const TokenFile closed(path, {.document_index = index({0, 2, 7})});
  EXPECT_EQ(starts_of(closed), (std::vector<std::int64_t>{0, 2}));
}

TEST_F(CorpusTest, LossMask) {
  const auto mask = temp_.write("t.mask", std::vector<std::uint8_t>{0, 1, 255, 0});
  const TokenFile file(u32({1, 2, 3, 4}), {.loss_mask = mask});
  EXPECT_TRUE(file.has_mask());
  std::vector<std::uint8_t> out(3);
  file.read_mask(1, out);
  EXPECT_EQ(out, (std::vector<std::uint8_t>{1, 1, 0}));
}

TEST_F(CorpusTest, WithoutMaskAllCount) {
  const TokenFile file(u32({1, 2}));
  EXPECT_FALSE(file.has_mask());
  std::vector<std::uint8_t> out(2);
  file.read_mask(0, out);
  EXPECT_EQ(out, (std::vector<std::uint8_t>{1, 1}));
}

TEST_F(CorpusTest, TextIsBytes) {
  const TextFiles text({temp_.write_text("a.txt", "h\xc3\xa9"), temp_.write_text("b.txt", "xyz")});
  EXPECT_EQ(read_all(text), (Tokens{'h', 0xc3, 0xa9, 'x', 'y', 'z'}));
  EXPECT_EQ(starts_of(text), (std::vector<std::int64_t>{0, 3}));
  EXPECT_TRUE(says(text.locate(4), {"b.txt", "byte 1"}));
  Tokens across(3);
  text.read(2, across);
  EXPECT_EQ(across, (Tokens{0xa9, 'x', 'y'}));
}

TEST_F(CorpusTest, TextDirectoryInNameOrder) {
  temp_.write_text("d/b.txt", "bb");
  temp_.write_text("d/a.txt", "a");
  temp_.write_text("d/empty.txt", "");
  temp_.write_text("d/.hidden", "h");
  temp_.write_text("d/.git/x", "g");
  temp_.write_text("d/c/x.txt", "c");
  const TextFiles text({temp_.path() / "d"});
  EXPECT_EQ(read_all(text), (Tokens{'a', 'b', 'b', 'c'}));
  EXPECT_EQ(starts_of(text), (std::vector<std::int64_t>{0, 1, 3}));
}

TEST_F(CorpusTest, TextThatChangesIsNoticed) {
  const auto path = temp_.write_text("a.txt", "abc");
  const TextFiles text({path});
  temp_.write_text("a.txt", "ab");
  EXPECT_TRUE(says(error_of([&] { read_all(text); }), {"a.txt", "has changed"}));
}

TEST_F(CorpusTest, SeveralTokenFilesFollowEachOther) {
  const auto a = u32({1, 2, 3}, "a"), b = u32({4, 9, 5}, "b");
  const auto corpus = open_corpus({.paths = {a, b}, .document_token = 9});
  EXPECT_EQ(read_all(*corpus), (Tokens{1, 2, 3, 4, 9, 5}));
  EXPECT_EQ(starts_of(*corpus), (std::vector<std::int64_t>{0, 3, 5}));
  EXPECT_EQ(corpus->document_end(1, 6), 3);
  EXPECT_TRUE(says(corpus->locate(4), {"b: token 1"}));
  EXPECT_FALSE(corpus->has_mask());
  std::vector<std::uint8_t> mask(4);
  corpus->read_mask(1, mask);
  EXPECT_EQ(mask, (std::vector<std::uint8_t>{1, 1, 1, 1}));
  EXPECT_TRUE(says(error_of([&] { corpus->check_vocabulary(9); }),
                   {"document_token 9", "vocabulary of 9"}));
}

TEST_F(CorpusTest, OpensEveryFormat) {
  EXPECT_EQ(open_corpus({.paths = {u32({1, 2})}})->tokens(), 2);
  EXPECT_EQ(open_corpus({.paths = {u32({1, 2})}, .format = "u16"})->tokens(), 4);
  EXPECT_EQ(open_corpus({.paths = {u32({1, 2})}, .format = "text"})->tokens(), 8);
  EXPECT_TRUE(says(error_of([&] {
                     open_corpus({.paths = {u32({1, 2})}, .format = "u8"});
                   }),
                   {"'u8'", "u32, u16, text and megatron"}));
}

// Invalid input, one test per case.

TEST_F(CorpusTest, EmptyFile) {
  EXPECT_TRUE(says(error_of([&] { TokenFile file(u32({})); }), {"t.u32", "empty"}));
  const auto text = temp_.write_text("a.txt", "");
  EXPECT_TRUE(says(error_of([&] { TextFiles files({text}); }), {"a.txt", "empty"}));
}

TEST_F(CorpusTest, MissingFile) {
  EXPECT_TRUE(
      says(error_of([&] { TokenFile file(temp_.path() / "none"); }), {"none", "No such file"}));
  EXPECT_TRUE(
      says(error_of([&] { TextFiles files({temp_.path() / "none"}); }), {"none", "No such file"}));
  EXPECT_TRUE(says(error_of([&] { open_corpus({}); }), {"data.path"}));
}

TEST_F(CorpusTest, DirectoryInPlaceOfTokens) {
  EXPECT_TRUE(says(error_of([&] { TokenFile file(temp_.path()); }),
                   {temp_.path().string(), "not a regular file"}));
  EXPECT_TRUE(says(error_of([&] { open_corpus({.paths = {temp_.path()}}); }),
                   {temp_.path().string(), "directory without a manifest.json", "data.format"}));
}

TEST_F(CorpusTest, DirectoryWithoutText) {
  EXPECT_TRUE(
      says(error_of([&] { TextFiles files({temp_.path()}); }), {temp_.path().string(), "no text"}));
}

TEST_F(CorpusTest, NotAWholeNumberOfTokens) {
  const auto path = temp_.write("t", std::vector<char>(7));
  EXPECT_TRUE(says(error_of([&] { TokenFile file(path); }), {"7 bytes", "4-byte tokens"}));
  EXPECT_TRUE(says(error_of([&] { TokenFile file(path, {.type = TokenType::kU16}); }),
                   {"7 bytes", "2-byte tokens"}));
}

TEST_F(CorpusTest, ValueThatNoVocabularyHolds) {
  const TokenFile file(u32({1, 2, 4294967295u}));
  EXPECT_TRUE(says(error_of([&] { read_all(file); }), {"t.u32: token 2", "4294967295"}));
}

TEST_F(CorpusTest, DocumentTokenOutOfRange) {
  const auto path = u32({1, 2});
  EXPECT_TRUE(
      says(error_of([&] { TokenFile file(path, {.document_token = -1}); }), {"document_token -1"}));
  EXPECT_TRUE(says(error_of([&] { TokenFile file(path, {.document_token = 1LL << 31}); }),
                   {"document_token 2147483648", "2147483647"}));
  EXPECT_TRUE(says(
      error_of([&] { TokenFile file(path, {.type = TokenType::kU16, .document_token = 65536}); }),
      {"document_token 65536", "65535"}));
  const TokenFile file(path, {.document_token = 2});
  EXPECT_EQ(error_of([&] { file.check_vocabulary(3); }), "");
  EXPECT_TRUE(
      says(error_of([&] { file.check_vocabulary(2); }), {"document_token 2", "vocabulary of 2"}));
}

TEST_F(CorpusTest, DocumentIndexMalformed) {
  const auto path = u32({1, 2, 3});
  const auto with = [&](const std::vector<std::uint64_t>& offsets) {
    return error_of([&] { TokenFile file(path, {.document_index = index(offsets)}); });
  };
  EXPECT_TRUE(says(with({1, 2}), {"t.index", "starts at 1, not at 0"}));
  EXPECT_TRUE(says(with({0, 2, 2}), {"document 2 starts at 2", "ascend"}));
  EXPECT_TRUE(says(with({0, 2, 1}), {"document 2 starts at 1", "ascend"}));
  EXPECT_TRUE(says(with({0, 4}), {"last offset is 4", "3 tokens"}));
  EXPECT_TRUE(says(with({0, ~std::uint64_t{0}}), {"last offset is 18446744073709551615"}));
  EXPECT_TRUE(says(with({}), {"t.index", "empty"}));
  const auto cut = temp_.write("cut", std::vector<char>(12));
  EXPECT_TRUE(says(error_of([&] { TokenFile file(path, {.document_index = cut}); }),
                   {"12 bytes", "8-byte"}));
}

TEST_F(CorpusTest, DocumentTokenAndIndex) {
  EXPECT_TRUE(says(error_of([&] {
                     TokenFile file(u32({1}), {.document_token = 1, .document_index = index({0})});
                   }),
                   {"both"}));
}

TEST_F(CorpusTest, MaskOfWrongLength) {
  const auto mask = temp_.write("t.mask", std::vector<std::uint8_t>(3));
  EXPECT_TRUE(says(error_of([&] {
                     TokenFile file(u32({1, 2}), {.loss_mask = mask});
                   }),
                   {"t.mask", "3 bytes", "2 tokens"}));
  const auto empty = temp_.write("empty.mask", std::vector<std::uint8_t>());
  EXPECT_TRUE(says(error_of([&] {
                     TokenFile file(u32({1, 2}), {.loss_mask = empty});
                   }),
                   {"0 bytes", "2 tokens"}));
}

TEST_F(CorpusTest, OptionsThatDoNotGoTogether) {
  const auto a = u32({1, 2});
  EXPECT_TRUE(
      says(error_of([&] { open_corpus({.paths = {a}, .format = "text", .document_token = 1}); }),
           {"text takes no document token"}));
  EXPECT_TRUE(says(error_of([&] {
                     open_corpus({.paths = {a, a}, .document_index = index({0})});
                   }),
                   {"one token file"}));
  EXPECT_TRUE(says(error_of([&] {
                     open_corpus({.paths = {a, a}, .loss_mask = a});
                   }),
                   {"one token file"}));
}

TEST_F(CorpusTest, TextNeedsAVocabularyOf256) {
  const TextFiles text({temp_.write_text("a.txt", "abc")});
  EXPECT_EQ(error_of([&] { text.check_vocabulary(256); }), "");
  EXPECT_TRUE(says(error_of([&] { text.check_vocabulary(255); }), {"256", "255"}));
}

}  // namespace
}  // namespace longstride
