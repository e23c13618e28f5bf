// Two ways in which a metrics line that was cut short made a run that could not be resumed: the
// only line of the file, which begins with the time; and half a line that a full disk left in the
// middle, since the run goes on without it.
#include <sys/resource.h>

#include <csignal>

#include "observe/metrics_file.h"
#include "tests/cli/run_directory.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;

TEST(MetricsLineCutShort, TheOnlyLineGoes) {
  const RunDirectory run;
  ASSERT_TRUE(ended(run.train({"--training.steps=1"}), 0));
  fs::remove_all(run.path("out/step-1"));
  for (const std::uintmax_t bytes : {300, 5, 1}) {
    fs::resize_file(run.path("out/metrics.jsonl"), bytes);
    EXPECT_TRUE(
        ended(run.train({"--training.steps=1", "--resume", "--checkpoint.directory=out"}), 0));
    EXPECT_EQ(run.metrics().size(), 1u);
    fs::remove_all(run.path("out/step-1"));
  }
  run.files().write_text("out/metrics.jsonl", "{\"mine\": 1");
  EXPECT_TRUE(
      refused(run.train({"--training.steps=1"}), {"metrics.jsonl:1: not a record of a step"}));
}

// The largest file this process may write, for as long as it lives.
class FileLimit {
 public:
  explicit FileLimit(rlim_t bytes) {
    std::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  FileLimit(const FileLimit&) = delete;
  FileLimit& operator=(const FileLimit&) = delete;
  ~FileLimit() { ::setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_ = {};
};

TEST(MetricsLineCutShort, HalfALineDoesNotStay) {
  const TempDirectory directory;
  const fs::path path = directory.path() / "metrics.jsonl";
  StepRecord record;
  {
    MetricsFile metrics(path, 0);
    for (record.step = 1; record.step <= 4; ++record.step) {
      if (record.step != 2) {
        metrics.append(record);
        continue;
      }
      const auto full = static_cast<rlim_t>(fs::file_size(path) * 3 / 2);
      const FileLimit limit(full);
      EXPECT_THROW(metrics.append(record), Error);
    }
  }
  EXPECT_NO_THROW(MetricsFile(path, 4));
  const std::string text = read_text(path);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3);
}

}  // namespace
}  // namespace longstride
