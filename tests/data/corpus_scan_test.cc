#include "data/corpus_scan.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/random.h"
#include "data/document_lengths.h"
#include "tests/data/temp_directory.h"

namespace longstride {
namespace {

class CorpusScanTest : public ::testing::Test {
 protected:
  template <class T>
  CorpusOptions file(const std::vector<T>& tokens, const std::string& format,
                     const std::string& name = "tokens.bin") {
    return {.paths = {temp_.write(name, tokens)}, .format = format};
  }
  template <class T>
  static std::vector<T> varied(std::size_t count, std::uint64_t below, std::uint64_t seed = 1) {
    Random random(seed);
    std::vector<T> tokens(count);
    for (T& t : tokens) t = static_cast<T>(1 + random.below(below - 1));
    return tokens;
  }
  static CorpusFacts scan(const CorpusOptions& options, std::int64_t vocabulary, int threads = 1) {
    return scan_corpus(*open_corpus(options), {vocabulary, options.document_token, threads});
  }
  // The check's error message; "" if none.
  static std::string check(const CorpusOptions& options, std::int64_t vocabulary) {
    const auto corpus = open_corpus(options);
    const ScanOptions scanned{vocabulary, options.document_token};
    return error_of([&] { check_facts(scan_corpus(*corpus, scanned), *corpus, scanned); });
  }
  static std::string warnings(const CorpusOptions& options) {
    const auto corpus = open_corpus(options);
    const ScanOptions scanned{1000, options.document_token};
    std::string text;
    for (const auto& line : fact_warnings(scan_corpus(*corpus, scanned), *corpus, scanned))
      text += line + "\n";
    return text;
  }
  TempDirectory temp_;
};

TEST_F(CorpusScanTest, GoodFilesPass) {
  EXPECT_EQ(check(file(varied<std::uint32_t>(5000, 320), "u32"), 320), "");
  EXPECT_EQ(check(file(varied<std::uint16_t>(5000, 320), "u16"), 320), "");
  EXPECT_EQ(check(file(varied<std::uint32_t>(5000, 150'000), "u32"), 151'936), "");
  EXPECT_EQ(check(file(std::vector<std::uint32_t>(5000, 0), "u32"), 320), "") << "all 0";
  EXPECT_EQ(check(file(std::vector<std::uint16_t>(5000, 0), "u16"), 320), "") << "all 0";
}

TEST_F(CorpusScanTest, TokensOutsideTheVocabulary) {
  auto tokens = varied<std::uint32_t>(300'000, 320);
  tokens[123'456] = 320;
  EXPECT_TRUE(says(check(file(tokens, "u32"), 320),
                   {"tokens.bin: token 123456 has the value 320", "vocabulary is 320 (0 to 319)",
                    "this model's tokenizer"}));
  tokens[250'001] = 4'294'967'295u;
  const std::string two = check(file(tokens, "u32"), 320);
  EXPECT_TRUE(says(two, {"token 123456", "2 of 300000 tokens"}));
  tokens[0] = static_cast<std::uint32_t>(-100);
  EXPECT_TRUE(says(check(file(tokens, "u32"), 320), {"token 0", "it is -100", "loss_mask"}));
}

TEST_F(CorpusScanTest, TheBadFileOfSeveral) {
  CorpusOptions options = file(varied<std::uint32_t>(1001, 320), "u32", "good.bin");
  auto tokens = varied<std::uint32_t>(999, 320);
  tokens[17] = 400;
  options.paths.push_back(temp_.write("bad.bin", tokens));
  EXPECT_TRUE(says(check(options, 320), {"bad.bin: token 17 has the value 400"}));
  // After an odd number of tokens, odd positions in the file are even in the corpus.
  options.paths.back() =
      temp_.write("wide.bin", std::vector<std::uint64_t>(varied<std::uint64_t>(500, 320)));
  EXPECT_TRUE(says(check(options, 320), {"wide.bin", "every second", "int64"}));
}

TEST_F(CorpusScanTest, U16ReadAsU32) {
  for (const std::int64_t vocabulary : {320, 50'257, 151'936})
    EXPECT_TRUE(says(check(file(varied<std::uint16_t>(5000, static_cast<std::uint64_t>(std::min(
                                                                vocabulary, std::int64_t{65536}))),
                                "u32"),
                           vocabulary),
                     {"token ", "looks like u16", "data.format"}))
        << vocabulary;
}

TEST_F(CorpusScanTest, U32ReadAsU16) {
  for (const std::int64_t vocabulary : {320, 50'257, 65'536, 151'936}) {
    const auto tokens = varied<std::uint32_t>(5000, static_cast<std::uint64_t>(vocabulary));
    EXPECT_TRUE(says(check(file(tokens, "u16"), vocabulary),
                     {"tokens.bin: every second", "looks like u32", "data.format"}))
        << vocabulary;
  }
}

TEST_F(CorpusScanTest, Int64) {
  const auto tokens = varied<std::uint64_t>(500, 320);
  for (const char* format : {"u32", "u16"})
    EXPECT_TRUE(says(check(file(tokens, format), 320),
                     {"every second", "is 0", "int64", "astype(\"<u4\")"}))
        << format;
  // Fewer may match by chance.
  EXPECT_EQ(check(file(varied<std::uint64_t>(31, 320), "u32"), 320), "");
  EXPECT_NE(check(file(varied<std::uint64_t>(32, 320), "u32"), 320), "");
}

TEST_F(CorpusScanTest, BigEndian) {
  auto wide = varied<std::uint32_t>(500, 50'000);
  for (auto& t : wide) t = __builtin_bswap32(t);
  EXPECT_TRUE(says(check(file(wide, "u32"), 50'257), {"big-endian", "\">u4\""}));
  auto narrow = varied<std::uint16_t>(500, 200);
  for (auto& t : narrow) t = __builtin_bswap16(t);
  EXPECT_TRUE(says(check(file(narrow, "u16"), 256), {"big-endian", "\">u2\""}));
}

TEST_F(CorpusScanTest, DocumentsAndTheirTokens) {
  CorpusOptions options = file(std::vector<std::uint32_t>{1, 2, 9, 3, 9, 9, 4, 4, 4, 4}, "u32");
  EXPECT_EQ(warnings(options), "");
  EXPECT_EQ(scan(options, 10).documents, 1);
  options.document_token = 9;
  EXPECT_EQ(warnings(options), "");
  const CorpusFacts facts = scan(options, 10);
  EXPECT_EQ(facts.documents, 4);
  EXPECT_EQ(facts.longest_document, 4);
  EXPECT_EQ(facts.median_document, 2);
  EXPECT_EQ(facts.targets, 6);
  EXPECT_EQ(facts.masked, 0);
  EXPECT_EQ(facts.files[0].values.largest, 9u);
  options.document_token = 7;
  EXPECT_TRUE(says(warnings(options), {"document_token 7 does not occur", "one document"}));
  options.document_token = 1;
  EXPECT_TRUE(says(warnings(options), {"tokens.bin: token 0", "document_index"}));
}

TEST_F(CorpusScanTest, TextHasSizesOnly) {
  temp_.write_text("d/a", "abc");
  temp_.write_text("d/b", "12345");
  const CorpusFacts facts = scan({.paths = {temp_.path() / "d"}, .format = "text"}, 256);
  EXPECT_EQ(facts.documents, 2);
  EXPECT_EQ(facts.median_document, 3);
  EXPECT_EQ(facts.longest_document, 5);
  EXPECT_EQ(facts.targets, 6);
  EXPECT_TRUE(facts.files.empty());
}

// Compared with counting one by one, for lengths that end before, at and after the scan's pieces.
TEST_F(CorpusScanTest, CountsWhatIsThereWithAnyNumberOfThreads) {
  constexpr std::uint32_t kEnd = 2;
  for (const std::size_t size :
       {std::size_t{1}, std::size_t{70'000}, (std::size_t{4} << 20) + 12'345}) {
    auto tokens = varied<std::uint32_t>(size, 300, size);
    std::vector<std::uint8_t> mask(size);
    Random random(3);
    for (auto& m : mask) m = random.below(3) != 0;
    // Ends are rare, so that most documents cross blocks and pieces.
    for (auto& t : tokens) t = t == kEnd && random.below(2000) != 0 ? 7 : t;
    if (size > 4'000'000) tokens[0] = tokens[(4u << 20) - 1] = tokens[4u << 20] = kEnd;
    CorpusOptions options = file(tokens, "u32");
    options.document_token = kEnd;
    options.loss_mask = temp_.write("mask", mask);

    CorpusFacts expected;
    std::vector<std::int64_t> lengths;
    std::int64_t begin = 0;
    for (std::size_t i = 0; i < size; ++i) {
      if (i > 0 && tokens[i - 1] != kEnd) (mask[i] ? expected.targets : expected.masked) += 1;
      if (tokens[i] != kEnd && i + 1 < size) continue;
      lengths.push_back(static_cast<std::int64_t>(i) + 1 - begin);
      begin = static_cast<std::int64_t>(i) + 1;
    }
    std::ranges::sort(lengths);
    CorpusFacts first;
    for (const int threads : {1, 2, 5}) {
      const CorpusFacts facts = scan(options, 290, threads);  // a few are outside
      EXPECT_EQ(facts.documents, std::ssize(lengths));
      EXPECT_EQ(facts.median_document, lengths[(lengths.size() - 1) / 2]);
      EXPECT_EQ(facts.longest_document, lengths.back());
      EXPECT_EQ(facts.targets, expected.targets);
      EXPECT_EQ(facts.masked, expected.masked);
      EXPECT_EQ(facts.document_tokens, std::ranges::count(tokens, kEnd));
      const TokenValues& values = facts.files.at(0).values;
      EXPECT_EQ(values.outside,
                std::ranges::count_if(tokens, [](std::uint32_t t) { return t >= 290; }));
      EXPECT_EQ(values.largest, *std::ranges::max_element(tokens));
      if (threads == 1) first = facts;
      EXPECT_EQ(values, first.files.at(0).values);
    }
  }
}

TEST_F(CorpusScanTest, StopsWhenAsked) {
  const CorpusOptions options = file(varied<std::uint32_t>(300'000, 320), "u32");
  const std::atomic<bool> stop{true};
  std::atomic<std::int64_t> done{0};
  scan_corpus(*open_corpus(options), {.vocabulary = 320, .stop = &stop, .done = &done});
  EXPECT_EQ(done, 0);
  scan_corpus(*open_corpus(options), {.vocabulary = 320, .done = &done});
  EXPECT_EQ(done, 300'000);
}

TEST_F(CorpusScanTest, AFileCutShortMeanwhile) {
  const CorpusOptions options = file(varied<std::uint32_t>(300'000, 320), "u32");
  const auto corpus = open_corpus(options);
  std::filesystem::resize_file(options.paths[0], 1000);
  for (const int threads : {1, 3})
    EXPECT_TRUE(
        says(error_of([&] { scan_corpus(*corpus, {.vocabulary = 320, .threads = threads}); }),
             {"tokens.bin has changed while it was in use", "leave the data alone"}));
}

TEST(DocumentLengths, MedianOfLongOnes) {
  DocumentLengths lengths, more;
  for (const std::int64_t n : {5, 1'000'000, 70'000}) lengths.add(n);
  EXPECT_EQ(lengths.median(), 70'000);
  more.add(80'000);
  more.add(3'000'000'000);
  lengths.merge(more);
  EXPECT_EQ(lengths.median(), 80'000);
  EXPECT_EQ(lengths.longest(), 3'000'000'000);
  EXPECT_EQ(DocumentLengths().median(), 0);
}

}  // namespace
}  // namespace longstride
