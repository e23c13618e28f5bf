#include "base/files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <random>
#include <utility>

#include "base/error.h"
#include "tests/data/temp_directory.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;

std::string text_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

std::size_t entries(const fs::path& directory) {
  return static_cast<std::size_t>(
      std::distance(fs::directory_iterator(directory), fs::directory_iterator()));
}

TEST(MappedFile, GivesTheBytes) {
  const TempDirectory temp;
  const fs::path path = temp.write_text("a", "some text");
  const MappedFile file(path);
  EXPECT_EQ(text_of(file), "some text");
  EXPECT_EQ(file.path(), path);
}

TEST(MappedFile, EmptyFileIsAnEmptySpan) {
  const TempDirectory temp;
  const fs::path path = temp.write_text("empty", "");
  EXPECT_TRUE(MappedFile(path).bytes().empty());
  EXPECT_EQ(read_text(path), "");
  EXPECT_EQ(checksum_of_file(path), checksum_of_text(""));
}

TEST(MappedFile, RefusesWhatIsNotAFile) {
  const TempDirectory temp;
  const fs::path missing = temp.path() / "missing";
  EXPECT_TRUE(says(error_of([&] { MappedFile{missing}; }),
                   {missing.string(), "No such file", "check the path"}));
  EXPECT_TRUE(says(error_of([&] { MappedFile{temp.path()}; }),
                   {temp.path().string(), "not a regular file"}));
  EXPECT_TRUE(says(error_of([&] { read_text(missing); }), {missing.string()}));
}

TEST(MappedFile, RefusesAPipeWithoutWaitingForItsWriter) {
  const TempDirectory temp;
  const fs::path pipe = temp.path() / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_TRUE(says(error_of([&] { MappedFile{pipe}; }), {pipe.string(), "not a regular file"}));
}

TEST(MappedFile, Moves) {
  const TempDirectory temp;
  MappedFile a(temp.write_text("a", "first"));
  MappedFile b(std::move(a));
  EXPECT_EQ(text_of(b), "first");
  MappedFile c(temp.write_text("c", "second"));
  c = std::move(b);
  EXPECT_EQ(text_of(c), "first");
}

TEST(MappedFile, OutlivesTheName) {
  const TempDirectory temp;
  const fs::path path = temp.write_text("a", "still here");
  const MappedFile file(path);
  fs::remove(path);
  EXPECT_EQ(text_of(file), "still here");
}

TEST(FileWriter, ChecksumIsThatOfTheFile) {
  const TempDirectory temp;
  const fs::path path = temp.path() / "written";
  std::mt19937 random(1);
  std::string all;
  FileWriter writer(path);
  // Pieces below, at and far above the block sizes of the hash.
  for (const std::size_t size : {0, 1, 7, 240, 256, 257, 1024, 100000}) {
    std::string piece(size, '\0');
    for (char& c : piece) c = static_cast<char>(random());
    all += piece;
    if (size % 2 == 0)
      writer.write(piece);
    else
      writer.write(std::as_bytes(std::span(piece)));
  }
  writer.finish();
  EXPECT_EQ(writer.bytes_written(), all.size());
  EXPECT_EQ(read_text(path), all);
  EXPECT_EQ(writer.checksum(), checksum_of_file(path));
  EXPECT_EQ(writer.checksum(), checksum_of_text(all));
  EXPECT_THROW(writer.write("more"), InternalError);
  EXPECT_THROW(writer.finish(), InternalError);
}

TEST(FileWriter, ChecksumSeesOneBit) {
  EXPECT_NE(checksum_of_text("longstride"), checksum_of_text("longstridf"));
  EXPECT_NE(checksum_of_text(""), checksum_of_text(std::string(1, '\0')));
}

TEST(FileWriter, NamesAFileThatCannotBeMade) {
  const TempDirectory temp;
  EXPECT_TRUE(says(error_of([&] { FileWriter{temp.path() / "no" / "file"}; }),
                   {"cannot create", "no/file", "No such file"}));
}

TEST(FileWriter, SaysWhenTheDiskIsFull) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "no /dev/full on this machine";
  FileWriter writer("/dev/full");
  EXPECT_TRUE(says(error_of([&] { writer.write("text"); }),
                   {"cannot write /dev/full", "No space left", "free some disk space"}));
}

TEST(WriteFileAtomic, ReplacesAndLeavesNoTemporary) {
  const TempDirectory temp;
  const fs::path path = temp.path() / "a.json";
  write_file_atomic(path, "old and longer");
  write_file_atomic(path, "new");
  EXPECT_EQ(read_text(path), "new");
  EXPECT_EQ(entries(temp.path()), 1u);
}

TEST(WriteFileAtomic, LeavesNoTemporaryWhereItFails) {
  const TempDirectory temp;
  const fs::path directory = temp.path() / "taken";
  fs::create_directory(directory);
  EXPECT_TRUE(says(error_of([&] { write_file_atomic(directory, "text"); }),
                   {"not a regular file", directory.string()}));
  EXPECT_EQ(entries(temp.path()), 1u);
  EXPECT_THROW(write_file_atomic(temp.path() / "no" / "file", "text"), Error);
}

TEST(DirectoryLock, IsForOneAtATime) {
  const TempDirectory temp;
  {
    const DirectoryLock lock(temp.path());
    EXPECT_TRUE(says(error_of([&] { const DirectoryLock second(temp.path()); }),
                     {"another process is at work in", temp.path().string()}));
  }
  EXPECT_NO_THROW(const DirectoryLock again(temp.path()));
  EXPECT_TRUE(
      says(error_of([&] { const DirectoryLock none(temp.path() / "no"); }), {"cannot open"}));
}

TEST(WriteFileAtomic, WritesPieceByPieceOrNotAtAll) {
  const TempDirectory temp;
  const fs::path path = temp.write_text("a", "old");
  EXPECT_THROW(write_file_atomic(path,
                                 [](FileWriter& writer) {
                                   writer.write("half");
                                   throw Error("enough");
                                 }),
               Error);
  EXPECT_EQ(read_text(path), "old");
  write_file_atomic(path, [](FileWriter& writer) {
    writer.write("one, ");
    writer.write("two");
  });
  EXPECT_EQ(read_text(path), "one, two");
  EXPECT_EQ(entries(temp.path()), 1u);
}

TEST(CheckFileWritable, LeavesEverythingAsItWas) {
  const TempDirectory temp;
  check_file_writable(temp.path() / "new");
  EXPECT_EQ(entries(temp.path()), 0u);
  const fs::path old = temp.write_text("old", "text");
  check_file_writable(old);
  EXPECT_EQ(read_text(old), "text");
  EXPECT_EQ(entries(temp.path()), 1u);
}

TEST(CheckFileWritable, RefusesWhatCouldNotBeWritten) {
  const TempDirectory temp;
  const fs::path file = temp.write_text("file", "text");
  EXPECT_TRUE(says(error_of([&] { check_file_writable(temp.path() / "none" / "a"); }),
                   {"cannot create", "none/a", "No such file", "check the path"}));
  EXPECT_TRUE(
      says(error_of([&] { check_file_writable(file / "a"); }), {"file/a", "Not a directory"}));
  EXPECT_TRUE(says(error_of([&] { check_file_writable(temp.path()); }), {"not a regular file"}));
  EXPECT_TRUE(
      says(error_of([&] { check_file_writable(temp.path() / ""); }), {"not a regular file"}));
  EXPECT_TRUE(says(error_of([] { check_file_writable("/dev/null"); }),
                   {"/dev/null", "not a regular file", "name a file"}));
}

TEST(MakeWritableDirectory, MakesParents) {
  const TempDirectory temp;
  const fs::path path = temp.path() / "a" / "b";
  make_writable_directory(path);
  make_writable_directory(path);
  EXPECT_TRUE(fs::is_directory(path));
  EXPECT_TRUE(fs::is_empty(path));
}

TEST(MakeWritableDirectory, RefusesAPlaceBelowAFile) {
  const TempDirectory temp;
  const fs::path file = temp.write_text("file", "x");
  EXPECT_TRUE(says(error_of([&] { make_writable_directory(file / "below"); }),
                   {(file / "below").string()}));
  EXPECT_TRUE(says(error_of([&] { make_writable_directory(file); }), {file.string()}));
  EXPECT_EQ(read_text(file), "x");
}

}  // namespace
}  // namespace longstride
