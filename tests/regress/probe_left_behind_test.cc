// A process that was killed while it tried whether it may write in a directory left the file of the
// trial there.
#include <gtest/gtest.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "base/files.h"
#include "tests/data/temp_directory.h"

namespace longstride {
namespace {

// Nothing that is killed in between can leave what never had a name.
TEST(ProbeLeftBehind, NoNameIsEverMade) {
  const TempDirectory directory;
  const int watch = ::inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
  ASSERT_GE(watch, 0);
  ASSERT_GE(::inotify_add_watch(watch, directory.path().c_str(), IN_CREATE), 0);
  char events[4096];
  directory.write_text("seen", "");
  ASSERT_GT(::read(watch, events, sizeof(events)), 0);  // it sees what is made
  make_writable_directory(directory.path());
  EXPECT_LT(::read(watch, events, sizeof(events)), 0);
  ::close(watch);
}

TEST(ProbeLeftBehind, WhatCannotBeWrittenToIsAnErrorStill) {
  const TempDirectory directory;
  directory.write_text("file", "no directory");
  EXPECT_THROW(make_writable_directory(directory.path() / "file"), Error);
  EXPECT_THROW(make_writable_directory("/proc/longstride"), Error);
}

}  // namespace
}  // namespace longstride
