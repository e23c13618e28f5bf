// Whole documents, long documents, stubs and mixes, as SampleStream gives them.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "base/random.h"
#include "data/sample_stream.h"
#include "data/token_file.h"
#include "tests/data/temp_directory.h"

namespace longstride {
namespace {

using Ints = std::vector<std::int32_t>;
using Longs = std::vector<std::int64_t>;
constexpr std::int32_t X = kNoTarget;

class PackingTest : public ::testing::Test {
 protected:
  // Documents of these lengths. The tokens count up, so that each one tells where it is from.
  std::shared_ptr<const Corpus> corpus(const std::vector<std::int64_t>& lengths,
                                       const std::vector<std::uint8_t>& mask = {},
                                       std::uint32_t first = 0) {
    std::vector<std::uint32_t> tokens;
    std::vector<std::uint64_t> starts;
    for (const std::int64_t length : lengths) {
      starts.push_back(tokens.size());
      for (std::int64_t i = 0; i < length; ++i)
        tokens.push_back(first + static_cast<std::uint32_t>(tokens.size()));
    }
    const std::string name = std::to_string(++written_);
    TokenFileOptions options;
    options.document_index = temp_.write("index" + name, starts);
    if (!mask.empty()) options.loss_mask = temp_.write("mask" + name, mask);
    return std::make_shared<TokenFile>(temp_.write("t" + name, tokens), options);
  }
  TempDirectory temp_;
  int written_ = 0;
};

SampleOptions whole(std::int64_t context, LongDocuments long_documents = LongDocuments::kSplit) {
  return {.context = context,
          .pack = Packing::kWhole,
          .long_documents = long_documents,
          .shuffle = false,
          .vocabulary = 1 << 30};
}

TEST_F(PackingTest, WholeDocuments) {
  const auto data = corpus({3, 6, 4, 7});  // from 0, 3, 9 and 13
  SampleStream stream(*data, whole(10));
  ASSERT_EQ(stream.samples_per_epoch(), 2);
  const Sample first = stream.sample(0);
  EXPECT_EQ(first.tokens, (Ints{0, 1, 2, 13, 14, 15, 16, 17, 18, 19}));
  EXPECT_EQ(first.targets, (Ints{1, 2, X, 14, 15, 16, 17, 18, 19, X}));
  EXPECT_EQ(first.document_starts, (Longs{0, 3}));
  const Sample second = stream.sample(1);
  EXPECT_EQ(second.tokens, (Ints{3, 4, 5, 6, 7, 8, 9, 10, 11, 12}));
  EXPECT_EQ(second.targets, (Ints{4, 5, 6, 7, 8, X, 10, 11, 12, X}));
  EXPECT_EQ(second.document_starts, (Longs{0, 6}));
}

TEST_F(PackingTest, LongDocumentsSplitCutOrDropped) {
  const auto data = corpus({11, 3});
  SampleStream split(*data, whole(4));
  ASSERT_EQ(split.samples_per_epoch(), 4);
  EXPECT_EQ(split.sample(0).targets, (Ints{1, 2, 3, 4})) << "the document goes on after the cut";
  EXPECT_EQ(split.sample(2).tokens, (Ints{8, 9, 10}));
  EXPECT_EQ(split.sample(2).targets, (Ints{9, 10, X}));
  EXPECT_EQ(split.sample(3).tokens, (Ints{11, 12, 13}));
  EXPECT_EQ(split.left_out().documents, 0);

  SampleStream cut(*data, whole(4, LongDocuments::kCut));
  ASSERT_EQ(cut.samples_per_epoch(), 2);
  EXPECT_EQ(cut.sample(0).tokens, (Ints{0, 1, 2, 3}));
  EXPECT_EQ(cut.sample(0).targets, (Ints{1, 2, 3, 4}));
  EXPECT_EQ(cut.sample(1).tokens, (Ints{11, 12, 13}));
  EXPECT_EQ(cut.left_out().documents, 1);
  EXPECT_EQ(cut.left_out().tokens, 7);

  SampleStream drop(*data, whole(4, LongDocuments::kDrop));
  ASSERT_EQ(drop.samples_per_epoch(), 1);
  EXPECT_EQ(drop.sample(0).tokens, (Ints{11, 12, 13}));
  EXPECT_EQ(drop.left_out().tokens, 11);

  SampleOptions alone = whole(4, LongDocuments::kDrop);
  alone.pack = Packing::kDocuments;
  SampleStream documents(*data, alone);
  EXPECT_EQ(documents.samples_per_epoch(), 1);
  alone.long_documents = LongDocuments::kCut;
  EXPECT_EQ(SampleStream(*data, alone).samples_per_epoch(), 2);
  // A document of exactly the context is not long.
  EXPECT_EQ(SampleStream(*corpus({4}), whole(4, LongDocuments::kDrop)).samples_per_epoch(), 1);
  EXPECT_TRUE(says(error_of([&] {
                     SampleStream(*corpus({5, 9}), whole(4, LongDocuments::kDrop));
                   }),
                   {"data.long = \"drop\"", "2 documents", "training.context"}));
}

// Random corpora: every document that has a target is there once, with its own targets, uncut if it
// fits, and no token is there twice.
TEST_F(PackingTest, NoDocumentIsLeftOutOrTwice) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    Random random(seed);
    const auto context = static_cast<std::int64_t>(2 + random.below(40));
    Longs lengths(1 + random.below(120));
    std::int64_t total = 0;
    for (std::int64_t& x : lengths) {
      x = static_cast<std::int64_t>(1 + random.below(static_cast<std::uint64_t>(2 * context)));
      total += x;
    }
    std::vector<std::uint8_t> mask;
    if (seed % 2 == 1)
      for (std::int64_t i = 0; i < total; ++i) mask.push_back(random.below(3) == 0 ? 1 : 0);
    const auto is_target = [&](std::int64_t token) {
      return mask.empty() || mask[static_cast<std::size_t>(token)] != 0;
    };
    std::map<std::int64_t, std::int64_t> expected;   // targets: the token, and the one before it
    std::map<std::int64_t, std::int64_t> documents;  // start and length
    std::int64_t at = 0;
    for (const std::int64_t length : lengths) {
      documents[at] = length;
      for (std::int64_t t = at + 1; t < at + length; ++t)
        if (is_target(t)) expected[t] = t - 1;
      at += length;
    }
    if (expected.empty()) continue;
    const auto data = corpus(lengths, mask);
    SampleOptions options = whole(context);
    options.shuffle = true;
    options.seed = seed;
    SampleStream stream(*data, options);
    std::map<std::int64_t, std::int64_t> found;
    std::set<std::int64_t> tokens;
    for (std::int64_t i = 0; i < stream.samples_per_epoch(); ++i) {
      const Sample s = stream.sample(i);
      ASSERT_LE(s.size(), context);
      ASSERT_EQ(s.size(), stream.size_of(i));
      ASSERT_EQ(s.counted_targets(), stream.counted_targets(i));
      const Longs parts = s.document_lengths();
      for (std::size_t p = 0; p < parts.size(); ++p) {
        const std::int64_t first = s.tokens[static_cast<std::size_t>(s.document_starts[p])];
        const auto document = --documents.upper_bound(first);
        if (document->second <= context) {
          EXPECT_EQ(first, document->first) << "cut";
          EXPECT_EQ(parts[p], document->second) << "cut";
        }
        EXPECT_LE(first + parts[p], document->first + document->second);
      }
      for (std::size_t t = 0; t < s.tokens.size(); ++t) {
        EXPECT_TRUE(tokens.insert(s.tokens[t]).second) << "token " << s.tokens[t] << " twice";
        if (s.targets[t] >= 0) found[s.targets[t]] = s.tokens[t];
      }
    }
    EXPECT_EQ(found, expected) << "seed " << seed;
  }
}

TEST_F(PackingTest, DocumentsWithoutATargetTakeNoRoom) {
  const auto data = corpus({1, 3, 2, 1, 4}, {1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1});
  SampleStream stream(*data, whole(7));
  ASSERT_EQ(stream.samples_per_epoch(), 1);
  EXPECT_EQ(stream.sample(0).tokens, (Ints{1, 2, 3, 7, 8, 9, 10}));
}

// A stub at the end.

SampleOptions stretches(std::int64_t context, bool drop_stub) {
  return {.context = context, .drop_stub = drop_stub, .shuffle = false, .vocabulary = 1 << 30};
}

TEST_F(PackingTest, AStubMakesNoSampleOfItsOwn) {
  const auto data = corpus({322});
  EXPECT_EQ(SampleStream(*data, stretches(160, false)).samples_per_epoch(), 3);
  SampleStream stream(*data, stretches(160, true));
  EXPECT_EQ(stream.samples_per_epoch(), 2);
  EXPECT_EQ(stream.left_out().stub, 2);
  EXPECT_EQ(stream.sample(1).targets.back(), 320) << "the first token of the stub is a target";
  // Less than a sixteenth of the context.
  EXPECT_EQ(SampleStream(*corpus({329}), stretches(160, true)).samples_per_epoch(), 2);
  EXPECT_EQ(SampleStream(*corpus({330}), stretches(160, true)).samples_per_epoch(), 3);
  // One target, in however short a context.
  EXPECT_EQ(SampleStream(*corpus({8}), stretches(3, true)).samples_per_epoch(), 2);
  EXPECT_EQ(SampleStream(*corpus({9}), stretches(3, true)).samples_per_epoch(), 3);
  // All there is.
  EXPECT_EQ(SampleStream(*corpus({2}), stretches(160, true)).samples_per_epoch(), 1);
  // The only sample with a target.
  EXPECT_EQ(SampleStream(*corpus({6}, {0, 0, 0, 0, 0, 1}), stretches(4, true)).samples_per_epoch(),
            1);
}

// Mixes.

TEST_F(PackingTest, SourcesInTheirSharesAndTheirOwnEpochs) {
  const std::vector<std::shared_ptr<const Corpus>> sources = {corpus({4, 4, 4}),
                                                              corpus({4, 4}, {}, 1000)};
  for (const bool shuffle : {false, true}) {
    SampleOptions options = whole(4);
    options.shuffle = shuffle;
    options.seed = 3;
    SampleStream stream(sources, {0.75, 0.25}, options);
    EXPECT_EQ(stream.samples_per_epoch(), 5);
    EXPECT_EQ(stream.samples_of_sources(), (Longs{3, 2}));
    std::vector<std::multiset<std::int32_t>> firsts(2);
    Longs taken = {0, 0};
    for (std::int64_t i = 0; i < 24; ++i) {
      const std::int32_t first = stream.sample(i).tokens[0];
      const std::size_t source = first >= 1000 ? 1 : 0;
      ++taken[source];
      EXPECT_LT(std::abs(static_cast<double>(taken[0]) - 0.75 * static_cast<double>(i + 1)), 1);
      firsts[source].insert(first);
      // Each epoch of a source has every sample once.
      const std::int64_t n = source == 0 ? 3 : 2;
      for (std::int64_t k = 0; taken[source] % n == 0 && k < n; ++k) {
        const auto sample = static_cast<std::int32_t>(4 * k + (source == 0 ? 0 : 1000));
        EXPECT_EQ(std::ssize(firsts[source]) / n,
                  static_cast<std::int64_t>(firsts[source].count(sample)));
      }
      EXPECT_EQ(stream.size_of(i), 4);
      EXPECT_EQ(stream.counted_targets(i), 3);
    }
    EXPECT_EQ(taken, (Longs{18, 6}));
  }
}

TEST_F(PackingTest, AMixIsAFunctionOfThePosition) {
  Longs lengths(50);
  for (std::size_t i = 0; i < lengths.size(); ++i)
    lengths[i] = 2 + static_cast<std::int64_t>(i) % 7;
  const std::vector<std::shared_ptr<const Corpus>> sources = {
      corpus(lengths), corpus({9, 9, 3}, {}, 5000), corpus({20}, {}, 9000)};
  for (const Packing pack : {Packing::kStretches, Packing::kDocuments, Packing::kWhole}) {
    SampleOptions options = whole(9);
    options.pack = pack;
    options.shuffle = true;
    const std::vector<double> shares = {0.31, 0.5, 0.19};
    SampleStream walked(sources, shares, options);
    std::vector<Ints> all;
    for (std::int64_t i = 0; i < 200; ++i) all.push_back(walked.sample(i).tokens);
    for (const std::int64_t i : {199, 0, 57, 58, 3, 120}) {
      SampleStream fresh(sources, shares, options);
      EXPECT_EQ(fresh.sample(i).tokens, all[static_cast<std::size_t>(i)]);
      EXPECT_EQ(walked.sample(i).tokens, all[static_cast<std::size_t>(i)]);
    }
  }
}

TEST_F(PackingTest, ASourceWithNothingToLearn) {
  const std::vector<std::shared_ptr<const Corpus>> sources = {corpus({4}), corpus({1, 1})};
  EXPECT_TRUE(says(error_of([&] {
                     SampleStream(sources, {1, 1}, whole(4));
                   }),
                   {"2 tokens of data hold nothing to learn"}));
}

// The first source comes in the order that it has alone, so that others may be added to a study.
TEST_F(PackingTest, TheFirstSourceKeepsItsOrder) {
  const auto data = corpus(Longs(40, 3));
  SampleOptions options = whole(3);
  options.shuffle = true;
  options.seed = 11;
  SampleStream alone(*data, options);
  const std::vector<std::shared_ptr<const Corpus>> sources = {data, corpus({3, 3}, {}, 500)};
  SampleStream mixed(sources, {1, 1}, options);
  std::int64_t next = 0;
  for (std::int64_t i = 0; i < 100; ++i) {
    const Ints tokens = mixed.sample(i).tokens;
    if (tokens[0] >= 500) continue;
    EXPECT_EQ(tokens, alone.sample(next++).tokens);
  }
}

}  // namespace
}  // namespace longstride
