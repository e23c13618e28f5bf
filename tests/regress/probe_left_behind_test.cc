// A process that was killed while it tried whether it may write in a directory left the file of the
// trial there.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "base/files.h"
#include "tests/data/temp_directory.h"

namespace longstride {
namespace {

TEST(ProbeLeftBehind, NoNameIsEverSeen) {
  const TempDirectory directory;
  std::atomic<bool> done{false};
  std::thread trials([&] {
    for (int i = 0; i < 2000; ++i) make_writable_directory(directory.path());
    done = true;
  });
  std::string seen;
  while (!done) {
    std::error_code none;
    for (const auto& entry : std::filesystem::directory_iterator(directory.path(), none))
      seen = entry.path().filename().string();
  }
  trials.join();
  EXPECT_EQ(seen, "");
}

TEST(ProbeLeftBehind, WhatCannotBeWrittenToIsAnErrorStill) {
  const TempDirectory directory;
  directory.write_text("file", "no directory");
  EXPECT_THROW(make_writable_directory(directory.path() / "file"), Error);
  EXPECT_THROW(make_writable_directory("/proc/longstride"), Error);
}

}  // namespace
}  // namespace longstride
