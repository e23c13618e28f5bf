#include "data/prepared.h"

#include <gtest/gtest.h>

#include <cmath>

#include "data/corpus_digest.h"
#include "data/corpus_scan.h"
#include "data/file_checksums.h"
#include "data/manifest.h"
#include "data/sample_stream.h"
#include "tests/data/prepared_directory.h"
#include "tests/data/temp_directory.h"

namespace longstride {
namespace {

using Tokens = std::vector<std::int32_t>;
using Longs = std::vector<std::int64_t>;

Tokens read_all(const Corpus& corpus) {
  Tokens out(static_cast<std::size_t>(corpus.tokens()));
  corpus.read(0, out);
  return out;
}

Longs ends_of(const Corpus& corpus) {
  Longs ends;
  corpus.document_ends(0, corpus.tokens(), {}, ends);
  return ends;
}

class PreparedTest : public ::testing::Test {
 protected:
  PreparedDirectory two_shards(int token_bytes = 2) {
    PreparedDirectory data(path(), token_bytes);
    data.add("train", {{.documents = {{1, 2, 3}, {4, 5}}}, {.documents = {{6}, {7, 8, 9, 10}}}});
    return data;
  }
  std::string refused(const OrderedJson& manifest) const {
    return error_of([&] { parse_manifest(manifest.dump(), "m.json"); });
  }
  std::filesystem::path path() const { return temp_.path() / "data"; }
  TempDirectory temp_;
};

TEST_F(PreparedTest, ReadsShardsOfBothWidths) {
  for (const int bytes : {2, 4}) {
    const auto corpus = open_corpus({.paths = {two_shards(bytes).write()}});
    EXPECT_EQ(read_all(*corpus), (Tokens{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}));
    EXPECT_EQ(ends_of(*corpus), (Longs{3, 5, 6, 10}));
    EXPECT_FALSE(corpus->has_mask());
    EXPECT_FALSE(corpus->has_weights());
    EXPECT_EQ(corpus->checked_files().size(), 4u);
    check_files(*corpus);
    EXPECT_NO_THROW(corpus->check_vocabulary(100));
    EXPECT_TRUE(says(error_of([&] { corpus->check_vocabulary(99); }),
                     {"manifest.json", "vocabulary of 100", "the model has 99"}));
  }
}

TEST_F(PreparedTest, TheEvalSplitIfThereIsOne) {
  PreparedDirectory data = two_shards();
  EXPECT_EQ(open_corpus({.paths = {data.write()}, .split = "eval"})->tokens(), 10);
  data.add("eval", {{.documents = {{11, 12}}}});
  EXPECT_EQ(read_all(*open_corpus({.paths = {data.write()}, .split = "eval"})), (Tokens{11, 12}));
  EXPECT_EQ(open_corpus({.paths = {path()}})->tokens(), 10);
  data.add("eval", {});  // no document's hash was in the fraction
  EXPECT_EQ(open_corpus({.paths = {data.write()}, .split = "eval"})->tokens(), 10);
}

TEST_F(PreparedTest, EmptyShardsArePassedOver) {
  PreparedDirectory data(path());
  data.add("train", {{.documents = {}}, {.documents = {{1, 2}}}, {.documents = {}}});
  EXPECT_EQ(read_all(*open_corpus({.paths = {data.write()}})), (Tokens{1, 2}));
  data.add("train", {{.documents = {}}});
  EXPECT_TRUE(says(error_of([&] { open_corpus({.paths = {data.write()}}); }),
                   {"manifest.json", "train split holds no tokens"}));
}

TEST_F(PreparedTest, MasksAndWeights) {
  PreparedDirectory data(path());
  data.add("train", {{.documents = {{1, 2, 3}}, .mask = {0, 1, 0}}});
  const auto masked = open_corpus({.paths = {data.write()}});
  std::vector<std::uint8_t> mask(3);
  masked->read_mask(0, mask);
  EXPECT_TRUE(masked->has_mask());
  EXPECT_FALSE(masked->has_weights());
  EXPECT_EQ(mask, (std::vector<std::uint8_t>{0, 1, 0}));
  std::vector<float> weights(3);
  masked->read_weights(0, weights);
  EXPECT_EQ(weights, (std::vector<float>{0, 1, 0}));

  data.add("train", {{.documents = {{1, 2, 3}, {4, 5}}, .weights = {3, -0.5F, 0, 9, 2}}});
  const auto weighted = open_corpus({.paths = {data.write()}});
  EXPECT_TRUE(weighted->has_mask());
  EXPECT_TRUE(weighted->has_weights());
  mask.resize(5);
  weighted->read_mask(0, mask);
  EXPECT_EQ(mask, (std::vector<std::uint8_t>{1, 1, 0, 1, 1}));
  SampleStream stream(*weighted, {.context = 8, .shuffle = false, .vocabulary = 100});
  const Sample sample = stream.sample(0);
  EXPECT_EQ(sample.targets, (Tokens{2, kNoTarget, kNoTarget, 5, kNoTarget}));
  EXPECT_EQ(sample.weights, (std::vector<float>{-0.5F, 0, 0, 2, 0}));
  SampleStream plain(*masked, {.context = 8, .shuffle = false, .vocabulary = 100});
  EXPECT_TRUE(plain.sample(0).weights.empty());
  EXPECT_NE(corpus_digest(*weighted), corpus_digest(*masked));
}

TEST_F(PreparedTest, WeightsOfZeroAndOneGiveTheMasksSamples) {
  PreparedDirectory a(temp_.path() / "a"), b(temp_.path() / "b");
  const std::vector<std::vector<std::uint32_t>> documents = {{1, 2, 3, 4}, {5}, {6, 7, 8}};
  a.add("train", {{.documents = documents, .mask = {1, 0, 1, 1, 1, 1, 0, 1}}});
  b.add("train", {{.documents = documents, .weights = {1, 0, 1, 1, 1, 1, 0, 1}}});
  const auto masked = open_corpus({.paths = {a.write()}}),
             weighted = open_corpus({.paths = {b.write()}});
  for (const Packing pack : {Packing::kStretches, Packing::kDocuments, Packing::kWhole}) {
    const SampleOptions options{.context = 5, .pack = pack, .vocabulary = 100};
    SampleStream x(*masked, options), y(*weighted, options);
    ASSERT_EQ(x.samples_per_epoch(), y.samples_per_epoch());
    for (std::int64_t i = 0; i < x.samples_per_epoch(); ++i) {
      EXPECT_EQ(x.sample(i).tokens, y.sample(i).tokens);
      EXPECT_EQ(x.sample(i).targets, y.sample(i).targets);
    }
  }
}

TEST_F(PreparedTest, AWeightThatIsNotFinite) {
  for (const std::size_t bad : {0u, 2u}) {  // the first token is no target
    PreparedDirectory data(path());
    std::vector<float> weights = {1, 1, 1};
    weights[bad] = bad == 0 ? NAN : INFINITY;
    data.add("train", {{.documents = {{1, 2, 3}}, .weights = weights}});
    const auto corpus = open_corpus({.paths = {data.write()}});
    EXPECT_TRUE(says(error_of([&] { scan_corpus(*corpus, {.vocabulary = 100}); }),
                     {"train-00000.weights", fmt::format("weight of token {}", bad), "finite"}));
  }
}

TEST_F(PreparedTest, AlteredFilesAreFoundByTheScan) {
  PreparedDirectory data = two_shards();
  data.add("train", {{.documents = {{1, 2, 3}, {4, 5}}, .mask = {1, 1, 1, 1, 1}},
                     {.documents = {{6}, {7, 8}}, .mask = {1, 1, 1}}});
  data.write();
  scan_corpus(*open_corpus({.paths = {path()}}), {.vocabulary = 100});
  for (const char* name : {"train-00000.tokens", "train-00001.tokens", "train-00001.mask"}) {
    const std::string before = read_text(path() / name);
    std::string after = before;
    after[2] = static_cast<char>(after[2] ^ 1);
    write_file_atomic(path() / name, after);
    const auto corpus = open_corpus({.paths = {path()}});
    for (const int threads : {1, 3})
      EXPECT_TRUE(
          says(error_of([&] { scan_corpus(*corpus, {.vocabulary = 100, .threads = threads}); }),
               {name, "has been altered", "manifest.json says", "prepare the data again"}));
    EXPECT_TRUE(says(error_of([&] { check_files(*corpus); }), {name, "altered"}));
    write_file_atomic(path() / name, before);
  }
}

TEST_F(PreparedTest, CutOrMissingFilesAreFoundAtOnce) {
  two_shards().write();
  for (const char* name : {"train-00000.tokens", "train-00001.index"}) {
    const std::string before = read_text(path() / name);
    write_file_atomic(path() / name, before.substr(0, before.size() - 2));
    EXPECT_TRUE(says(error_of([&] { open_corpus({.paths = {path()}}); }),
                     {name, fmt::format("has {} bytes", before.size() - 2),
                      fmt::format("says {}", before.size())}));
    std::filesystem::remove(path() / name);
    EXPECT_TRUE(says(error_of([&] { open_corpus({.paths = {path()}}); }), {name, "cannot open"}));
    write_file_atomic(path() / name, before);
  }
  std::string index = read_text(path() / "train-00000.index");
  index[16] = 4;  // the closing offset, which is 5
  write_file_atomic(path() / "train-00000.index", index);
  EXPECT_TRUE(says(error_of([&] { open_corpus({.paths = {path()}}); }),
                   {"train-00000.index", "the last offset is 4", "5 tokens"}));
}

// What the manifest says is not said again.
TEST_F(PreparedTest, OtherSettingsAreRefusedByName) {
  two_shards().write();
  const auto file = temp_.write("other", std::vector<std::uint32_t>{20, 21});
  const auto refused = [&](const CorpusOptions& options, const std::string& key) {
    EXPECT_TRUE(says(error_of([&] { open_corpus(options); }),
                     {key + " does not go with", "manifest.json", "leave " + key + " out"}));
  };
  refused({.paths = {path()}, .format = "u16"}, "data.format");
  refused({.paths = {path()}, .format = "text"}, "data.format");
  refused({.paths = {path()}, .document_token = 3}, "data.document_token");
  refused({.paths = {path()}, .document_index = file}, "data.document_index");
  refused({.paths = {path()}, .loss_mask = file}, "data.loss_mask");
  refused({.paths = {path()}, .loss_mask = file, .keys = {.loss_mask = "--loss-mask"}},
          "--loss-mask");
  // For other files beside it, or for other data, they are needed.
  const auto both = open_corpus({.paths = {path(), file}, .format = "u16", .document_token = 21});
  EXPECT_EQ(both->tokens(), 14);
  EXPECT_EQ(open_corpus({.paths = {path()}, .format = "u16", .shared_format = true})->tokens(), 10);
  EXPECT_TRUE(
      says(error_of([&] {
             open_corpus({.paths = {path(), temp_.write_text("t", "abc")}, .format = "text"});
           }),
           {"data.format is \"text\"", "prepared data"}));
}

// A directory of text may hold another program's manifest.json.
TEST_F(PreparedTest, AnotherProgramsManifest) {
  temp_.write_text("web/manifest.json", "{\"name\": \"app\"}");
  const auto web = temp_.path() / "web";
  EXPECT_EQ(open_corpus({.paths = {web}, .format = "text"})->tokens(), 15);
  EXPECT_TRUE(says(error_of([&] { open_corpus({.paths = {web}}); }), {"manifest.json", "format"}));
  temp_.write_text("web/manifest.json", "not JSON");
  EXPECT_EQ(open_corpus({.paths = {web}, .format = "text"})->tokens(), 8);
}

TEST_F(PreparedTest, ManifestsThatDoNotFitTogether) {
  const OrderedJson good = two_shards().json;
  EXPECT_EQ(refused(good), "");
  const auto with = [&](const char* pointer, const OrderedJson& value) {
    OrderedJson changed = good;
    changed[OrderedJson::json_pointer(pointer)] = value;
    return refused(changed);
  };
  EXPECT_EQ(with("/unknown", 3), "") << "unknown keys are passed over";
  EXPECT_EQ(with("/splits/train/shards/0/more", 3), "");
  EXPECT_TRUE(says(with("/format", "other"), {"m.json", "\"other\"", "longstride data"}));
  EXPECT_TRUE(says(with("/version", 2), {"version 2", "reads 1", "newer"}));
  EXPECT_TRUE(says(with("/version", 0), {"version"}));
  EXPECT_TRUE(says(with("/token_bytes", 3), {"token_bytes", "3"}));
  EXPECT_TRUE(says(with("/vocabulary", 70000), {"vocabulary of 70000", "2 bytes"}));
  EXPECT_TRUE(says(with("/vocabulary", -1), {"vocabulary", "-1"}));
  EXPECT_TRUE(says(with("/targets", "some"), {"targets", "some"}));
  EXPECT_TRUE(says(with("/targets", "mask"), {"train-00000", "mask"})) << "the files are missing";
  EXPECT_TRUE(says(with("/splits", 3), {"neither a train nor an eval split"}));
  EXPECT_TRUE(says(with("/splits/train/tokens", 11), {"tokens", "11", "10"}));
  EXPECT_TRUE(says(with("/splits/train/documents", 3), {"documents", "3", "4"}));
  const std::string shard = "/splits/train/shards/1/";
  const auto of_shard = [&](const char* key, const OrderedJson& value) {
    return with((shard + key).c_str(), value);
  };
  EXPECT_TRUE(says(of_shard("tokens", 4), {"train-00001.tokens", "bytes"}));
  EXPECT_TRUE(says(of_shard("tokens", std::uint64_t{1} << 62), {"tokens", "train-00001"}));
  EXPECT_TRUE(says(of_shard("documents", 9), {"9 documents in 5 tokens"}));
  EXPECT_TRUE(says(of_shard("documents", 1.5), {"documents", "1.5"}));
  EXPECT_TRUE(says(of_shard("files/index/bytes", 16), {"train-00001.index", "16", "24"}));
  EXPECT_TRUE(says(of_shard("files/index/xxh3", "12"), {"train-00001.index", "16 hex"}));
  EXPECT_TRUE(says(of_shard("name", "train-00000"), {"two shards", "train-00000"}));
  for (const char* name : {"", "../x", "a/b", ".hidden", "/etc/passwd"})
    EXPECT_TRUE(says(of_shard("name", name), {"no name of a file"})) << name;
  EXPECT_TRUE(says(error_of([] { parse_manifest("[]", "m.json"); }), {"m.json"}));
  EXPECT_TRUE(says(error_of([] { parse_manifest("{", "m.json"); }), {"m.json"}));
}

// A u16 file of tokens that happen to be letters is not taken for text.
TEST_F(PreparedTest, TokensThatLookLikeText) {
  PreparedDirectory data(path(), 2, 60000);
  data.add("train", {{.documents = {std::vector<std::uint32_t>(600, 0x6161)}}});
  EXPECT_EQ(open_corpus({.paths = {data.write()}})->tokens(), 600);
}

}  // namespace
}  // namespace longstride
