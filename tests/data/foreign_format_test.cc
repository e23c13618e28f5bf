#include "data/foreign_format.h"

#include <gtest/gtest.h>

#include "base/random.h"
#include "data/corpus.h"
#include "tests/data/temp_directory.h"

namespace longstride {
namespace {

std::string opened(const std::string& bytes, const std::string& format) {
  const TempDirectory temp;
  return error_of(
      [&] { open_corpus({.paths = {temp.write_text("data.bin", bytes)}, .format = format}); });
}

// Bytes like those of a compressed file.
std::string noise(std::size_t count) {
  Random random(5);
  std::string bytes(count, '\0');
  for (char& b : bytes) b = static_cast<char>(random.below(256));
  return bytes;
}

TEST(ForeignFormat, IsNamedWithItsConversion) {
  const std::string rest = noise(1000);
  const std::string header = R"({"tokens":{"dtype":"I64","shape":[4],"data_offsets":[0,32]}})";
  const std::vector<std::pair<std::string, std::vector<std::string>>> cases = {
      {std::string("\x93NUMPY\x01\x00v\x00{'descr': '<u4'}", 26) + rest + "12",
       {"data.bin is a NumPy .npy file", "numpy.load", "tofile"}},
      {std::string("PK\3\4\x14\0\0\0\0\0", 10) + rest + "PK\5\6" + std::string(18, '\0'),
       {"a zip archive", "numpy.load"}},
      {std::string("\x3c\0\0\0\0\0\0\0", 8) + header + std::string(32, '\1'),
       {"a safetensors file", "load_file"}},
      {"PAR1" + rest + "PAR1", {"a Parquet file", "tofile"}},
      {std::string("ARROW1\0\0", 8) + rest, {"an Arrow file"}},
      {"\x89HDF\r\n\x1a\n" + rest, {"an HDF5 file", "h5py"}},
      {std::string("\x1f\x8b\x08\0\0\0\0\0\2\3", 10) + rest + "12",
       {"compressed by gzip", "gunzip"}},
      {"\x28\xb5\x2f\xfd" + rest, {"compressed by zstd", "zstd -d"}},
      {std::string("MMIDIDX\0\0", 9) + rest + "123", {"Megatron", "data.format to \"megatron\""}}};
  for (const auto& [bytes, parts] : cases) {
    EXPECT_TRUE(says(opened(bytes, "u32"), parts));
    EXPECT_TRUE(says(opened(bytes, "u16"), parts));
    EXPECT_EQ(opened(bytes, "text"), "") << "text is whatever the user says";
  }
}

TEST(ForeignFormat, Text) {
  std::string ascii, umlauts;
  while (ascii.size() < 1000) ascii += "Some words, and {\"json\": 1}.\n";
  while (umlauts.size() < 1000) umlauts += "Gr\xc3\xbc\xc3\x9f Gott \xe4\xbd\xa0\xe5\xa5\xbd ";
  for (std::string text : {ascii, umlauts}) {
    text.resize(text.size() / 4 * 4, ' ');
    for (const char* format : {"u32", "u16"})
      EXPECT_TRUE(says(opened(text, format), {"data.bin is text", "data.format"}));
  }
}

// The first tokens may look like a header, but then the rest does not.
TEST(ForeignFormat, TokensThatBeginLikeAHeaderAreTokens) {
  const std::string rest = noise(1000);
  for (const std::string& begin :
       {std::string("PK\3\4"), std::string("PAR1"), std::string("\x1f\x8b\x08\0", 4),
        std::string(8, '\0') + "{\"xx"})
    EXPECT_EQ(opened(begin + rest, "u16"), "");
  EXPECT_EQ(opened(noise(4096), "u16"), "");
  EXPECT_EQ(opened("1234567890ab", "u16"), "") << "too short to be sure";
}

TEST(ForeignFormat, IndexAndMask) {
  const TempDirectory temp;
  CorpusOptions options{.paths = {temp.write("t", std::vector<std::uint32_t>(300, 5))}};
  options.loss_mask = temp.write_text("mask", std::string(300, '1'));
  EXPECT_TRUE(says(error_of([&] { open_corpus(options); }), {"mask is text", "a loss mask"}));
  options.loss_mask = temp.write_text("mask.npy", "\x93NUMPY" + std::string(300, '\1'));
  EXPECT_TRUE(says(error_of([&] { open_corpus(options); }), {"NumPy", "\"u1\""}));
  options.loss_mask.clear();
  options.document_index = temp.write_text("index.npy", "\x93NUMPY" + std::string(130, '\1'));
  EXPECT_TRUE(says(error_of([&] { open_corpus(options); }), {"NumPy", "\"<u8\""}));
}

}  // namespace
}  // namespace longstride
