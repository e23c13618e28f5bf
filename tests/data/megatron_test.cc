#include "data/megatron.h"

#include <gtest/gtest.h>

#include "base/files.h"
#include "base/random.h"
#include "data/corpus_scan.h"
#include "data/file_checksums.h"
#include "data/sample_stream.h"
#include "tests/data/temp_directory.h"

namespace longstride {
namespace {

using Tokens = std::vector<std::int32_t>;
using Longs = std::vector<std::int64_t>;

// An index as Megatron's IndexedDatasetBuilder writes it.
struct Index {
  std::string magic = std::string("MMIDIDX\0\0", 9);
  std::uint64_t version = 1;
  std::uint8_t code = 8;
  std::vector<std::int32_t> lengths;
  std::vector<std::int64_t> documents;  // sequence indices, the first 0
  std::vector<std::int64_t> pointers = {};
  std::string more = {};

  std::string text(std::int64_t width) const {
    std::vector<std::int64_t> at = pointers;
    std::int64_t next = 0;
    for (const std::int32_t length : lengths) {
      if (pointers.empty()) at.push_back(next);
      next += length * width;
    }
    std::string out = magic;
    const auto put = [&](const auto* values, std::size_t n) {
      out.append(reinterpret_cast<const char*>(values), n * sizeof(*values));
    };
    const std::uint64_t counts[] = {lengths.size(), documents.size()};
    put(&version, 1);
    put(&code, 1);
    put(counts, 2);
    put(lengths.data(), lengths.size());
    put(at.data(), at.size());
    put(documents.data(), documents.size());
    return out + more;
  }
};

class MegatronTest : public ::testing::Test {
 protected:
  template <class T>
  std::filesystem::path write(const std::vector<T>& tokens, const Index& index) const {
    temp_.write_text("x.idx", index.text(sizeof(T)));
    return temp_.write("x.bin", tokens);
  }
  std::shared_ptr<const Corpus> open(const std::filesystem::path& path) const {
    return open_corpus({.paths = {path}, .format = "megatron"});
  }
  template <class T>
  std::string refused(const std::vector<T>& tokens, const Index& index) const {
    const auto path = write(tokens, index);
    return error_of([&] { open(path); });
  }
  Tokens read_all(const Corpus& corpus) const {
    Tokens out(static_cast<std::size_t>(corpus.tokens()));
    corpus.read(0, out);
    return out;
  }
  Longs ends_of(const Corpus& corpus) const {
    Longs ends;
    corpus.document_ends(0, corpus.tokens(), {}, ends);
    return ends;
  }
  template <class T>
  void check_type(std::uint8_t code) const {
    const auto path = write(std::vector<T>{5, 0, 99, 7, 1},
                            {.code = code, .lengths = {2, 3}, .documents = {0, 1, 2}});
    const auto corpus = open(path);
    EXPECT_EQ(read_all(*corpus), (Tokens{5, 0, 99, 7, 1})) << int{code};
    EXPECT_EQ(ends_of(*corpus), (Longs{2, 5}));
    EXPECT_EQ(corpus->token_files()[0].width, 0);
  }
  TempDirectory temp_;
};

TEST_F(MegatronTest, EveryTypeOfTokens) {
  check_type<std::uint8_t>(1);
  check_type<std::int8_t>(2);
  check_type<std::int16_t>(3);
  check_type<std::int32_t>(4);
  check_type<std::int64_t>(5);
  check_type<std::uint16_t>(8);
}

TEST_F(MegatronTest, AnyOfTheThreeNames) {
  write(std::vector<std::uint16_t>{1, 2}, {.lengths = {2}, .documents = {0, 1}});
  for (const char* name : {"x.bin", "x.idx", "x"})
    EXPECT_EQ(open(temp_.path() / name)->tokens(), 2) << name;
  temp_.write_text("v1.5_text.idx", Index{.lengths = {1}, .documents = {0, 1}}.text(2));
  temp_.write("v1.5_text.bin", std::vector<std::uint16_t>{1});
  EXPECT_EQ(open(temp_.path() / "v1.5_text")->tokens(), 1);
  EXPECT_TRUE(says(error_of([&] { open(temp_.path() / "y"); }), {"y.idx", "cannot open"}));
}

TEST_F(MegatronTest, DocumentsOfSeveralSequences) {
  const std::vector<std::uint16_t> tokens = {1, 2, 3, 4, 5, 6, 7};
  EXPECT_EQ(ends_of(*open(write(tokens, {.lengths = {2, 1, 3, 1}, .documents = {0, 2, 3, 4}}))),
            (Longs{3, 6, 7}));
  // Documents without a sequence, and sequences without a token.
  EXPECT_EQ(ends_of(*open(write(tokens, {.lengths = {0, 3, 0, 0, 4, 0},
                                         .documents = {0, 0, 2, 3, 3, 4, 5, 6, 6}}))),
            (Longs{3, 7}));
}

TEST_F(MegatronTest, ALossMaskMayGoWithIt) {
  const auto path =
      write(std::vector<std::uint16_t>{1, 2, 3}, {.lengths = {3}, .documents = {0, 1}});
  const auto mask = temp_.write("mask", std::vector<std::uint8_t>{1, 0, 1});
  const auto corpus = open_corpus({.paths = {path}, .format = "megatron", .loss_mask = mask});
  SampleStream stream(*corpus, {.context = 8, .vocabulary = 10});
  EXPECT_EQ(stream.sample(0).targets, (Tokens{kNoTarget, 3, kNoTarget}));
  EXPECT_TRUE(says(
      error_of([&] { open_corpus({.paths = {path}, .format = "megatron", .document_token = 3}); }),
      {"data.document_token", "megatron", ".idx"}));
}

TEST_F(MegatronTest, ValuesThatNoVocabularyHolds) {
  const auto path = write(std::vector<std::int64_t>{1, std::int64_t{1} << 33, 3},
                          {.code = 5, .lengths = {3}, .documents = {0, 1}});
  EXPECT_TRUE(says(error_of([&] { scan_corpus(*open(path), {.vocabulary = 10}); }),
                   {"x.bin: token 1", "8589934592", "no vocabulary"}));
  const auto negative = write(std::vector<std::int16_t>{1, -100, 3},
                              {.code = 3, .lengths = {3}, .documents = {0, 1}});
  const auto corpus = open(negative);
  const ScanOptions options{.vocabulary = 10};
  EXPECT_TRUE(says(error_of([&] { check_facts(scan_corpus(*corpus, options), *corpus, options); }),
                   {"x.bin: token 1", "-100", "loss_mask"}));
}

// The type is known, so numbers are not suspected to be of another width.
TEST_F(MegatronTest, EverySecondTokenMayBeZero) {
  std::vector<std::uint16_t> tokens(200);
  for (std::size_t i = 0; i < tokens.size(); i += 2) tokens[i] = 7;
  const auto corpus = open(write(tokens, {.lengths = {200}, .documents = {0, 1}}));
  const ScanOptions options{.vocabulary = 100};
  EXPECT_EQ(error_of([&] { check_facts(scan_corpus(*corpus, options), *corpus, options); }), "");
}

TEST_F(MegatronTest, IndexesThatAreRefused) {
  const std::vector<std::uint16_t> tokens = {1, 2, 3, 4, 5};
  const Index good{.lengths = {2, 3}, .documents = {0, 1, 2}};
  EXPECT_EQ(refused(tokens, good), "");
  const auto with = [&](const auto& change) {
    Index index = good;
    change(index);
    return refused(tokens, index);
  };
  EXPECT_TRUE(says(with([](Index& i) { i.magic[0] = 'X'; }), {"x.idx", "MMIDIDX"}));
  EXPECT_TRUE(says(with([](Index& i) { i.version = 2; }), {"x.idx", "version 2"}));
  EXPECT_TRUE(says(with([](Index& i) { i.code = 6; }), {"floating-point"}));
  EXPECT_TRUE(says(with([](Index& i) { i.code = 7; }), {"floating-point"}));
  EXPECT_TRUE(says(with([](Index& i) { i.code = 9; }), {"type code is 9"}));
  EXPECT_TRUE(says(with([](Index& i) { i.more = "123"; }), {"3 bytes follow"}));
  EXPECT_TRUE(says(with([](Index& i) { i.more = "12"; }), {"multimodal"}));
  EXPECT_TRUE(says(with([](Index& i) { i.lengths[0] = -2; }), {"sequence 0", "-2"}));
  EXPECT_TRUE(says(with([](Index& i) {
                     i.pointers = {0, 6};
                   }),
                   {"sequence 1", "byte 6", "not at 4"}));
  EXPECT_TRUE(says(with([](Index& i) { i.documents = {1, 2}; }), {"first document", "1"}));
  EXPECT_TRUE(says(with([](Index& i) { i.documents = {0, 2, 1}; }), {"x.idx"}));
  EXPECT_TRUE(says(with([](Index& i) { i.documents = {0, 1}; }), {"end at sequence 1 of 2"}));
  EXPECT_TRUE(says(with([](Index& i) { i.documents = {0, 3}; }), {"sequence 3 of 2"}));
  EXPECT_TRUE(says(with([](Index& i) { i.documents = {0}; }), {"no document"}));
  EXPECT_TRUE(says(with([](Index& i) { i.lengths = {2, 2}; }), {"x.bin has 10 bytes", "says 8"}));
  EXPECT_TRUE(says(with([](Index& i) {
                     i.lengths = {};
                     i.documents = {0, 0};
                   }),
                   {"x.bin has 10 bytes", "says 0"}));
  EXPECT_TRUE(
      says(refused(std::vector<std::uint16_t>{}, {.lengths = {}, .documents = {0, 0}}), {"empty"}));
  const std::string whole = good.text(2);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    temp_.write_text("x.idx", whole.substr(0, size));
    EXPECT_NE(error_of([&] { open(temp_.path() / "x"); }), "") << size;
  }
}

// One byte changed: an Error, or an index that still fits its file.
TEST_F(MegatronTest, AnyByteMayBeWrong) {
  const std::vector<std::uint16_t> tokens = {1, 2, 3, 4, 5};
  write(tokens, {.lengths = {2, 3}, .documents = {0, 1, 2}});
  const std::string whole = read_text(temp_.path() / "x.idx");
  Random random(3);
  for (std::size_t at = 0; at < whole.size(); ++at)
    for (int n = 0; n < 3; ++n) {
      std::string changed = whole;
      changed[at] = static_cast<char>(random.below(256));
      temp_.write_text("x.idx", changed);
      try {
        const auto corpus = open(temp_.path() / "x");
        EXPECT_GT(corpus->tokens(), 0);
        EXPECT_EQ(ends_of(*corpus).back(), corpus->tokens());
      } catch (const Error&) {
      }
    }
}

}  // namespace
}  // namespace longstride
