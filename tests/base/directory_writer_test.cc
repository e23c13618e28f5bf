#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "base/error.h"
#include "base/files.h"
#include "tests/data/temp_directory.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> names_in(const fs::path& directory) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory))
    names.push_back(entry.path().filename().string());
  return names;
}

TEST(DirectoryWriter, AppearsWhole) {
  const TempDirectory temp;
  const fs::path target = temp.path() / "parent" / "out";
  DirectoryWriter writer(target);
  write_file_atomic(writer.path() / "a", "one");
  fs::create_directory(writer.path() / "inner");
  write_file_atomic(writer.path() / "inner" / "b", "two");
  EXPECT_FALSE(fs::exists(target));
  writer.commit();
  EXPECT_EQ(read_text(target / "a"), "one");
  EXPECT_EQ(read_text(target / "inner" / "b"), "two");
  EXPECT_EQ(names_in(target.parent_path()), std::vector<std::string>{"out"});
}

TEST(DirectoryWriter, LeavesNothingWithoutCommit) {
  const TempDirectory temp;
  const fs::path target = temp.path() / "out";
  {
    DirectoryWriter first(target);
    write_file_atomic(first.path() / "a", "old");
    first.commit();
  }
  {
    const DirectoryWriter second(target);
    write_file_atomic(second.path() / "a", "new");
    EXPECT_TRUE(is_unfinished_directory(second.path()));
  }
  EXPECT_EQ(read_text(target / "a"), "old");
  EXPECT_EQ(names_in(temp.path()), std::vector<std::string>{"out"});
}

TEST(DirectoryWriter, ReplacesAnExistingOne) {
  const TempDirectory temp;
  const fs::path target = temp.path() / "out";
  fs::create_directory(target);
  temp.write_text("out/old", "old");
  DirectoryWriter writer(target);
  write_file_atomic(writer.path() / "new", "new");
  EXPECT_EQ(read_text(target / "old"), "old");
  writer.commit();
  EXPECT_EQ(names_in(target), std::vector<std::string>{"new"});
  EXPECT_EQ(names_in(temp.path()), std::vector<std::string>{"out"});
}

// A process killed during a replacement must leave the old directory or the new one: the name must
// exist at all times.
TEST(DirectoryWriter, TheNameIsNeverAbsentWhileItIsReplaced) {
  const TempDirectory temp;
  const fs::path target = temp.path() / "out";
  fs::create_directory(target);
  std::atomic<bool> done{false};
  std::atomic<std::int64_t> absent{0};
  std::thread watcher([&] {
    while (!done)
      if (!fs::exists(target)) ++absent;
  });
  for (int i = 0; i < 100; ++i) {
    DirectoryWriter writer(target);
    writer.commit();
  }
  done = true;
  watcher.join();
  EXPECT_EQ(absent, 0);
}

TEST(DirectoryWriter, ASlashAtTheEndChangesNothing) {
  const TempDirectory temp;
  DirectoryWriter writer(temp.path() / "out" / "");
  writer.commit();
  EXPECT_EQ(names_in(temp.path()), std::vector<std::string>{"out"});
}

TEST(DirectoryWriter, StartsAfreshWhereALeftoverLies) {
  const TempDirectory temp;
  fs::path leftover;
  {
    const DirectoryWriter writer(temp.path() / "out");
    leftover = writer.path();
  }
  fs::create_directory(leftover);
  temp.write_text(leftover.filename().string() + "/stale", "x");
  DirectoryWriter writer(temp.path() / "out");
  writer.commit();
  EXPECT_TRUE(fs::is_empty(temp.path() / "out"));
}

TEST(DirectoryWriter, RefusesAPlaceBelowAFile) {
  const TempDirectory temp;
  const fs::path file = temp.write_text("file", "x");
  EXPECT_TRUE(says(error_of([&] { DirectoryWriter{file / "out"}; }), {file.string()}));
}

TEST(UnfinishedDirectory, KnowsItsNames) {
  EXPECT_TRUE(is_unfinished_directory("runs/.step-10.unfinished-123"));
  EXPECT_FALSE(is_unfinished_directory("runs/step-10"));
  EXPECT_FALSE(is_unfinished_directory("runs/.hidden"));
  EXPECT_FALSE(is_unfinished_directory("runs/notes.unfinished-draft"));
  EXPECT_FALSE(is_unfinished_directory("runs/.step-10.unfinished-123/model"));
}

}  // namespace
}  // namespace longstride
