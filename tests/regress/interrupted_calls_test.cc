// A signal that cut a system call short was taken for a failure of the disk.
#include <gtest/gtest.h>
#include <sys/time.h>

#include <csignal>

#include "base/files.h"
#include "base/system_calls.h"
#include "tests/data/temp_directory.h"

namespace longstride {
namespace {

TEST(InterruptedCalls, AreMadeAgain) {
  int calls = 0;
  const auto f = [&] {
    errno = ++calls < 4 ? EINTR : 0;
    return calls < 4 ? -1 : 7;
  };
  EXPECT_EQ(retry_eintr(f), 7);
  EXPECT_EQ(calls, 4);
}

TEST(InterruptedCalls, OtherFailuresAreNot) {
  int calls = 0;
  const auto f = [&] {
    ++calls;
    errno = EIO;
    return -1;
  };
  EXPECT_EQ(retry_eintr(f), -1);
  EXPECT_EQ(errno, EIO);
  EXPECT_EQ(calls, 1);
}

TEST(InterruptedCalls, ACloseIsMadeOnce) {
  EXPECT_EQ(close_descriptor(-1), EBADF);
  const int fd = ::dup(STDERR_FILENO);
  ASSERT_GE(fd, 0);
  EXPECT_EQ(close_descriptor(fd), 0);
  EXPECT_EQ(close_descriptor(fd), EBADF);
}

void nothing(int) {}

// Signals without SA_RESTART, all the time, as of a profiler's clock.
TEST(InterruptedCalls, FilesAreWrittenUnderAShowerOfSignals) {
  struct sigaction action {};
  struct sigaction before {};
  action.sa_handler = nothing;
  ASSERT_EQ(::sigaction(SIGALRM, &action, &before), 0);
  const itimerval often{{0, 200}, {0, 200}}, never{};
  ::setitimer(ITIMER_REAL, &often, nullptr);
  const TempDirectory temp;
  const std::string text(1 << 20, 'x');
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(error_of([&] { write_file_atomic(temp.path() / "file", text); }), "");
    DirectoryWriter writer(temp.path() / "directory");
    EXPECT_EQ(error_of([&] { writer.commit(); }), "");
    EXPECT_EQ(error_of([&] { const DirectoryLock lock(temp.path()); }), "");
  }
  ::setitimer(ITIMER_REAL, &never, nullptr);
  ::sigaction(SIGALRM, &before, nullptr);
  EXPECT_EQ(read_text(temp.path() / "file"), text);
}

}  // namespace
}  // namespace longstride
