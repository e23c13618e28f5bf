#include "base/read_ahead.h"

#include <gtest/gtest.h>

#include <string>

#include "base/files.h"
#include "tests/data/temp_directory.h"

namespace longstride {
namespace {

TEST(ReadAhead, ChecksumsOfFilesThatAreReadAheadAreThoseOfTheirBytes) {
  const TempDirectory directory;
  const std::filesystem::path path = directory.path() / "file";
  // Less than a block of the checksum, one block, several and a rest, more than is prefetched.
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{8} << 20, (std::size_t{24} << 20) + 3,
                                  (std::size_t{72} << 20) + 17}) {
    std::string text(bytes, '\0');
    for (std::size_t i = 0; i < text.size(); i += 61) text[i] = static_cast<char>(i % 251);
    write_file_atomic(path, text);
    EXPECT_EQ(checksum_of_file(path), checksum_of_text(text)) << bytes;
  }
}

TEST(ReadAhead, TakesPartsThatBeginAndEndAnywhere) {
  const TempDirectory directory;
  const std::filesystem::path path = directory.path() / "file";
  write_file_atomic(path, std::string(10'000, 'x'));
  const MappedFile file(path);
  will_read(file.bytes().subspan(4'097, 1));
  will_read(file.bytes().subspan(1, 9'999));
  will_read({});
  EXPECT_EQ(file.bytes()[4'097], std::byte{'x'});
}

}  // namespace
}  // namespace longstride
