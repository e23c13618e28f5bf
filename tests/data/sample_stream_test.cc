#include "data/sample_stream.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/random.h"
#include "data/token_file.h"
#include "tests/data/temp_directory.h"

namespace longstride {
namespace {

using Ints = std::vector<std::int32_t>;
using Longs = std::vector<std::int64_t>;
constexpr std::int32_t X = kNoTarget;

class SampleStreamTest : public ::testing::Test {
 protected:
  TokenFile file(const std::vector<std::uint32_t>& tokens, const TokenFileOptions& options = {}) {
    return TokenFile(temp_.write("t", tokens), options);
  }
  std::filesystem::path mask(const std::vector<std::uint8_t>& v) { return temp_.write("mask", v); }
  TempDirectory temp_;
};

Packing packing(bool pack) { return pack ? Packing::kStretches : Packing::kDocuments; }

SampleOptions in_order(std::int64_t context, bool pack) {
  return {.context = context, .pack = packing(pack), .shuffle = false, .vocabulary = 100};
}

TEST_F(SampleStreamTest, PackedStretches) {
  const TokenFile tokens = file({1, 2, 9, 3, 4, 5, 6, 7}, {.document_token = 9});
  SampleStream stream(tokens, in_order(3, true));
  ASSERT_EQ(stream.samples_per_epoch(), 3);
  const Sample a = stream.sample(0), b = stream.sample(1), c = stream.sample(2);
  EXPECT_EQ(a.tokens, (Ints{1, 2, 9}));
  EXPECT_EQ(a.targets, (Ints{2, 9, X}));
  EXPECT_EQ(a.document_starts, (Longs{0}));
  EXPECT_EQ(b.tokens, (Ints{3, 4, 5}));
  EXPECT_EQ(b.targets, (Ints{4, 5, 6})) << "the document goes on: its next token is a target";
  EXPECT_EQ(c.tokens, (Ints{6, 7}));
  EXPECT_EQ(c.targets, (Ints{7, X}));
}

TEST_F(SampleStreamTest, PackedDocumentsInOneStretch) {
  const TokenFile tokens = file({1, 9, 9, 2, 3, 9, 4, 5}, {.document_token = 9});
  SampleStream stream(tokens, in_order(7, true));
  const Sample s = stream.sample(0);
  EXPECT_EQ(s.tokens, (Ints{1, 9, 9, 2, 3, 9, 4}));
  EXPECT_EQ(s.targets, (Ints{9, X, X, 3, 9, X, 5}));
  EXPECT_EQ(s.document_starts, (Longs{0, 2, 3, 6}));
  EXPECT_EQ(s.document_lengths(), (Longs{2, 1, 3, 1}));
  EXPECT_EQ(s.counted_targets(), 4);
  EXPECT_EQ(stream.samples_per_epoch(), 1) << "the last token alone has no target";
}

TEST_F(SampleStreamTest, OneDocumentPerSample) {
  const TokenFile tokens = file({1, 2, 9, 3, 9, 9, 4, 5, 6, 7, 8}, {.document_token = 9});
  SampleStream stream(tokens, in_order(4, false));
  ASSERT_EQ(stream.samples_per_epoch(), 3) << "{9} and {8} have no target";
  EXPECT_EQ(stream.sample(0).tokens, (Ints{1, 2, 9}));
  EXPECT_EQ(stream.sample(1).tokens, (Ints{3, 9}));
  EXPECT_EQ(stream.sample(1).targets, (Ints{9, X}));
  EXPECT_EQ(stream.sample(2).tokens, (Ints{4, 5, 6, 7}));
  EXPECT_EQ(stream.sample(2).targets, (Ints{5, 6, 7, 8}));
}

TEST_F(SampleStreamTest, MaskedTokensAreNoTargets) {
  const TokenFile tokens = file({1, 2, 3, 4, 5, 6}, {.loss_mask = mask({1, 0, 1, 0, 0, 1})});
  SampleStream stream(tokens, in_order(3, true));
  EXPECT_EQ(stream.sample(0).targets, (Ints{X, 3, X}));
  EXPECT_EQ(stream.sample(1).targets, (Ints{X, 6, X}));
}

TEST_F(SampleStreamTest, SamplesWithoutTargetsAreLeftOut) {
  const TokenFile tokens = file({1, 2, 3, 4, 5, 6}, {.loss_mask = mask({1, 1, 0, 0, 0, 1})});
  SampleStream stream(tokens, in_order(2, true));
  ASSERT_EQ(stream.samples_per_epoch(), 2);
  EXPECT_EQ(stream.sample(0).tokens, (Ints{1, 2}));
  EXPECT_EQ(stream.sample(1).tokens, (Ints{5, 6}));
}

TEST_F(SampleStreamTest, MaskedTargetFarIntoASample) {
  std::vector<std::uint8_t> bytes(20000, 0);
  bytes[4096] = bytes[15000] = 1;
  const TokenFile tokens = file(std::vector<std::uint32_t>(20000, 1), {.loss_mask = mask(bytes)});
  SampleStream stream(tokens, in_order(10000, true));
  ASSERT_EQ(stream.samples_per_epoch(), 2);
  const Sample first = stream.sample(0), second = stream.sample(1);
  EXPECT_EQ(first.counted_targets(), 1);
  EXPECT_EQ(first.targets[4095], 1);
  EXPECT_EQ(second.targets[4999], 1);
}

TEST_F(SampleStreamTest, WithoutShuffleEpochsRepeat) {
  const TokenFile tokens = file({1, 2, 3, 4, 5, 6});
  SampleStream stream(tokens, in_order(2, true));
  for (std::int64_t i = 0; i < 9; ++i) EXPECT_EQ(stream.sample(i).tokens[0], 2 * (i % 3) + 1);
}

std::vector<std::uint32_t> counting(std::uint32_t n) {
  std::vector<std::uint32_t> tokens(n);
  for (std::uint32_t i = 0; i < n; ++i) tokens[i] = i;
  return tokens;
}

Ints firsts(SampleStream& stream, std::int64_t begin, std::int64_t end) {
  Ints out;
  for (std::int64_t i = begin; i < end; ++i) out.push_back(stream.sample(i).tokens[0]);
  return out;
}

TEST_F(SampleStreamTest, ShuffleIsAPermutationOfItsOwnInEachEpoch) {
  const TokenFile tokens = file(counting(80));
  SampleOptions options{.context = 2, .seed = 7, .vocabulary = 100};
  SampleStream stream(tokens, options);
  const Ints first = firsts(stream, 0, 40), second = firsts(stream, 40, 80);
  EXPECT_NE(first, second);
  EXPECT_EQ(std::set<std::int32_t>(first.begin(), first.end()).size(), 40u);
  EXPECT_EQ(std::set<std::int32_t>(second.begin(), second.end()).size(), 40u);
  EXPECT_FALSE(std::is_sorted(first.begin(), first.end()));
  options.seed = 8;
  SampleStream other(tokens, options);
  EXPECT_NE(firsts(other, 0, 40), first);
}

TEST_F(SampleStreamTest, APositionIsASingleInteger) {
  const TokenFile tokens = file(counting(80));
  const SampleOptions options{.context = 2, .seed = 7, .vocabulary = 100};
  SampleStream walked(tokens, options), jumped(tokens, options);
  const Ints all = firsts(walked, 0, 100);
  EXPECT_EQ(jumped.sample(99).tokens[0], all[99]);
  EXPECT_EQ(jumped.sample(3).tokens[0], all[3]) << "back into an earlier epoch";
  EXPECT_EQ(jumped.sample(41).tokens[0], all[41]);
}

// Every target of the corpus occurs exactly once in an epoch, for any cuts.
TEST_F(SampleStreamTest, EveryTargetOnceInAnEpoch) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    Random random(seed);
    const std::size_t n = 2 + random.below(60);
    std::vector<std::uint32_t> tokens(n);
    std::vector<std::uint8_t> bytes(n);
    for (auto& t : tokens) t = static_cast<std::uint32_t>(random.below(6));
    for (auto& b : bytes) b = random.below(4) != 0;
    std::int64_t expected = 0;
    for (std::size_t i = 1; i < n; ++i) expected += tokens[i - 1] != 5 && bytes[i] != 0;
    if (expected == 0) continue;
    const TokenFile corpus = file(tokens, {.document_token = 5, .loss_mask = mask(bytes)});
    const bool pack = random.below(2) == 0;
    SampleStream stream(corpus, {.context = static_cast<std::int64_t>(2 + random.below(10)),
                                 .pack = packing(pack),
                                 .seed = seed,
                                 .vocabulary = 6});
    std::int64_t counted = 0;
    for (std::int64_t i = 0; i < stream.samples_per_epoch(); ++i) {
      const Sample s = stream.sample(i);
      EXPECT_EQ(s.tokens.size(), s.targets.size());
      EXPECT_EQ(s.document_starts[0], 0);
      EXPECT_GT(s.counted_targets(), 0);
      if (!pack) {
        EXPECT_EQ(s.document_starts.size(), 1u);
      }
      counted += s.counted_targets();
    }
    EXPECT_EQ(counted, expected) << "seed " << seed;
  }
}

TEST_F(SampleStreamTest, PositionsBeyond32Bits) {
  // A sparse file of 2^32 + 8 tokens; only the last ones are written.
  const auto path = temp_.path() / "large";
  { std::ofstream create(path); }
  const std::int64_t tokens = (std::int64_t{1} << 32) + 8;
  std::filesystem::resize_file(path, static_cast<std::uintmax_t>(tokens * 2));
  {
    std::fstream out(path, std::ios::in | std::ios::out | std::ios::binary);
    const std::uint16_t tail[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    out.seekp((tokens - 8) * 2);
    out.write(reinterpret_cast<const char*>(tail), sizeof(tail));
  }
  const auto starts =
      temp_.write("index", std::vector<std::uint64_t>{0, (std::uint64_t{1} << 32) + 3});
  const TokenFile corpus(path, {.type = TokenType::kU16, .document_index = starts});
  ASSERT_EQ(corpus.tokens(), tokens);
  SampleStream stream(corpus, in_order(std::int64_t{1} << 20, true));
  ASSERT_EQ(stream.samples_per_epoch(), 4097);
  const Sample last = stream.sample(4096);
  EXPECT_EQ(last.tokens, (Ints{1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(last.targets, (Ints{2, 3, X, 5, 6, 7, 8, X}));
  EXPECT_EQ(last.document_starts, (Longs{0, 3}));
  EXPECT_EQ(stream.sample(4095).targets.back(), 1);
}

// Invalid input, one test per case.

// Documents and samples that end at, before and after the blocks in which they are read.
TEST_F(SampleStreamTest, TargetsAreCountedWithoutTheSamples) {
  for (const std::size_t n : {std::size_t{700}, std::size_t{300'000}})
    for (const bool pack : {true, false})
      for (const bool masked : {true, false})
        for (const int documents : {0, 1, 2}) {
          Random random(n + 8u * pack + 4u * masked + static_cast<unsigned>(documents));
          std::vector<std::uint32_t> tokens(n);
          std::vector<std::uint8_t> bytes(n);
          std::vector<std::uint64_t> starts = {0};
          for (auto& t : tokens) t = 1 + static_cast<std::uint32_t>(random.below(50));
          for (auto& b : bytes) b = random.below(3) == 0;
          for (std::size_t at = 0; (at += 1 + random.below(n / 3)) < n;) {
            tokens[at - 1] = 0;
            starts.push_back(at);
          }
          TokenFileOptions options;
          if (masked) options.loss_mask = mask(bytes);
          if (documents == 1) options.document_token = 0;
          if (documents == 2) options.document_index = temp_.write("index", starts);
          const TokenFile corpus = file(tokens, options);
          SampleStream stream(corpus, {.context = static_cast<std::int64_t>(n / 2 + 13),
                                       .pack = packing(pack),
                                       .shuffle = false,
                                       .vocabulary = 100});
          for (std::int64_t i = 0; i < stream.samples_per_epoch() + 1; ++i)
            EXPECT_EQ(stream.counted_targets(i), stream.sample(i).counted_targets());
        }
}

TEST_F(SampleStreamTest, TokenOutOfVocabulary) {
  const TokenFile tokens = file({1, 2, 3, 4, 77, 5});
  SampleStream stream(tokens, {.context = 3, .shuffle = false, .vocabulary = 77});
  EXPECT_EQ(stream.sample(0).targets, (Ints{2, 3, 4}));
  EXPECT_TRUE(says(error_of([&] { stream.sample(1); }),
                   {"t: token 4", "value 77", "vocabulary is 77", "0 to 76"}));
}

TEST_F(SampleStreamTest, ATargetBehindTheCutIsCheckedToo) {
  const TokenFile tokens = file({1, 2, 3, 77});
  SampleStream stream(tokens, {.context = 3, .shuffle = false, .vocabulary = 77});
  EXPECT_TRUE(says(error_of([&] { stream.sample(0); }), {"token 3", "value 77"}));
}

TEST_F(SampleStreamTest, ContextTooSmall) {
  const TokenFile tokens = file({1, 2, 3});
  EXPECT_TRUE(says(error_of([&] { SampleStream stream(tokens, in_order(0, true)); }),
                   {"context of 0", "training.context"}));
  EXPECT_TRUE(
      says(error_of([&] { SampleStream stream(tokens, in_order(1, true)); }), {"context of 1"}));
}

TEST_F(SampleStreamTest, NothingToLearn) {
  const TokenFile one = file({1});
  EXPECT_TRUE(says(error_of([&] { SampleStream stream(one, in_order(4, true)); }),
                   {"1 tokens", "nothing to learn"}));
  const TokenFile masked = file({1, 2, 3}, {.loss_mask = mask({1, 0, 0})});
  EXPECT_TRUE(says(error_of([&] { SampleStream stream(masked, in_order(4, false)); }),
                   {"nothing to learn", "mask"}));
}

TEST_F(SampleStreamTest, VocabularyThatCannotFit) {
  const TokenFile tokens = file({1, 2, 3}, {.document_token = 100});
  EXPECT_TRUE(says(error_of([&] { SampleStream stream(tokens, in_order(4, true)); }),
                   {"document_token 100"}));
}

}  // namespace
}  // namespace longstride
