#include "data/own_outputs.h"

#include <gtest/gtest.h>

#include "tests/data/temp_directory.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;

std::string text_of(const Corpus& corpus) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(corpus.tokens()));
  corpus.read(0, tokens);
  return {tokens.begin(), tokens.end()};
}

class OwnOutputsTest : public ::testing::Test {
 protected:
  OwnOutputsTest() {
    temp_.write_text("d/a.txt", "a");
    temp_.write_text("d/out/step-3/config.json", "config");
    temp_.write_text("d/out/metrics.jsonl", "metrics");
    temp_.write_text("d/z.txt", "z");
  }
  fs::path path(const std::string& name) const { return temp_.path() / name; }
  std::string text(const std::string& data, const RunOutputs& outputs) const {
    return text_of(*open_corpus({.paths = {path(data)}, .format = "text", .outputs = outputs}));
  }
  RunOutputs outputs(const std::string& directory) const {
    return {{path(directory)}, {path(directory + "/metrics.jsonl")}, path(directory)};
  }
  TempDirectory temp_;
};

TEST_F(OwnOutputsTest, ADirectoryBelowTheData) {
  EXPECT_EQ(text("d", {}), "ametricsconfigz");
  EXPECT_EQ(text("d", outputs("d/out")), "az");
  EXPECT_EQ(text("d", outputs("d/out/")), "az");
  EXPECT_EQ(text("d/", outputs("d/../d/out")), "az");
  EXPECT_EQ(text("d", outputs("elsewhere")), "ametricsconfigz");
}

TEST_F(OwnOutputsTest, ByLinksToo) {
  fs::create_directory_symlink(path("d"), path("link"));
  EXPECT_EQ(text("link", outputs("d/out")), "az");
  EXPECT_EQ(text("d", outputs("link/out")), "az");
  fs::create_symlink(path("d/out/metrics.jsonl"), path("d/b.txt"));
  fs::create_symlink(path("d/out/step-3/config.json"), path("d/c.txt"));
  fs::create_symlink(path("d/z.txt"), path("d/y.txt"));
  EXPECT_EQ(text("d", outputs("d/out")), "azz");
}

TEST_F(OwnOutputsTest, DataBesideCheckpoints) {
  temp_.write_text("d/out/note.txt", "note");
  temp_.write_text("d/out/step-by-step.txt", "steps");
  EXPECT_EQ(text("d/out", outputs("d/out")), "notesteps");
  EXPECT_EQ(text("d/out", outputs("d")), "metricsnoteconfigsteps") << "nothing of d's run";
}

TEST_F(OwnOutputsTest, NamedByItself) {
  for (const char* name : {"d/out/metrics.jsonl", "d/out/step-3", "d/out/step-3/config.json"})
    EXPECT_TRUE(says(error_of([&] { text(name, outputs("d/out")); }),
                     {name, "is an output of this run", "checkpoint.directory"}))
        << name;
  fs::remove(path("d/a.txt"));
  fs::remove(path("d/z.txt"));
  EXPECT_TRUE(says(error_of([&] { text("d", outputs("d/out")); }),
                   {"holds no text", "outputs of this run"}));
}

}  // namespace
}  // namespace longstride
