#include "data/corpus_digest.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "tests/data/temp_directory.h"

namespace longstride {
namespace {

class CorpusDigest : public testing::Test {
 protected:
  std::string digest(const std::vector<std::uint32_t>& tokens, std::optional<std::int64_t> end = {},
                     const std::string& mask = "") {
    directory_.write_text("tokens.bin", std::string(reinterpret_cast<const char*>(tokens.data()),
                                                    tokens.size() * sizeof(std::uint32_t)));
    CorpusOptions options{.paths = {directory_.path() / "tokens.bin"}, .document_token = end};
    if (!mask.empty()) {
      directory_.write_text("mask.bin", mask);
      options.loss_mask = directory_.path() / "mask.bin";
    }
    return corpus_digest(*open_corpus(options));
  }
  static std::vector<std::uint32_t> counted(std::size_t tokens) {
    std::vector<std::uint32_t> values(tokens);
    std::iota(values.begin(), values.end(), 0u);
    return values;
  }

  TempDirectory directory_;
};

TEST_F(CorpusDigest, SeesLengthTokensDocumentsAndMask) {
  for (const std::size_t length : {1, 700, 1024, 5000, 300'000}) {
    const std::vector<std::uint32_t> tokens = counted(length);
    const std::string same = digest(tokens);
    EXPECT_EQ(same.size(), 16u);
    EXPECT_EQ(digest(tokens), same);
    EXPECT_NE(digest(counted(length + 1)), same);
    for (const std::size_t at : {std::size_t{0}, length - 1}) {
      std::vector<std::uint32_t> changed = tokens;
      changed[at] += 7;
      EXPECT_NE(digest(changed), same) << length << " " << at;
    }
    if (length > 1) {
      EXPECT_NE(digest(tokens, 0), same) << length;
    }
    EXPECT_NE(digest(tokens, {}, std::string(length, '\0')), same) << length;
  }
}

// A token outside every vocabulary is reported by the step that reads it.
TEST_F(CorpusDigest, PassesOverBrokenTokens) {
  std::vector<std::uint32_t> tokens = counted(100);
  const std::string whole = digest(tokens);
  tokens[50] = 0xffffffffu;
  const std::string broken = digest(tokens);
  EXPECT_NE(broken, whole);
  // Regardless of the file's location.
  std::filesystem::rename(directory_.path() / "tokens.bin", directory_.path() / "moved.bin");
  EXPECT_EQ(corpus_digest(*open_corpus({.paths = {directory_.path() / "moved.bin"}})), broken);
}

}  // namespace
}  // namespace longstride
