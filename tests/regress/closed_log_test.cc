// A log that nobody reads any more is no reason to end a run: `train 2>&1 | head`, or a tee that
// Ctrl-C ended.
#include <fcntl.h>

#include "tests/cli/run_directory.h"

namespace longstride {
namespace {

// Runs with stdout and stderr in a pipe whose reader is gone; its exit status.
int run_into_closed_pipe(const RunDirectory& run, std::vector<std::string> words) {
  int ends[2];
  if (::pipe(ends) != 0) return -1;
  words.insert(words.begin(), program_path().string());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::close(ends[0]);
    ::dup2(ends[1], STDOUT_FILENO);
    ::dup2(ends[1], STDERR_FILENO);
    if (::chdir(run.path().c_str()) != 0) ::_exit(126);
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  ::close(ends[0]);
  ::close(ends[1]);
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TEST(ClosedLog, TheRunGoesOnAndSaves) {
  const RunDirectory run;
  EXPECT_EQ(run_into_closed_pipe(run, {"train", "run.toml"}), 0);
  EXPECT_TRUE(std::filesystem::exists(run.path("out/step-6/state/state.json")));
  EXPECT_EQ(run.metrics().size(), 6u);
}

}  // namespace
}  // namespace longstride
