#include "observe/metrics_file.h"

#include <gtest/gtest.h>

#include <sstream>

#include "base/files.h"
#include "tests/data/temp_directory.h"

namespace longstride {
namespace {

StepRecord record(std::int64_t step) {
  StepRecord r;
  r.step = step;
  r.loss = 1.0 / static_cast<double>(step);
  return r;
}

std::vector<std::int64_t> steps_in(const std::filesystem::path& path) {
  std::vector<std::int64_t> steps;
  std::istringstream lines(read_text(path));
  for (std::string line; std::getline(lines, line);) steps.push_back(Json::parse(line)["step"]);
  return steps;
}

using Steps = std::vector<std::int64_t>;

class MetricsFileTest : public ::testing::Test {
 protected:
  void write_steps(std::int64_t n) {
    MetricsFile file(path_, 0);
    for (std::int64_t step = 1; step <= n; ++step) file.append(record(step));
  }
  TempDirectory temp_;
  std::filesystem::path path_ = temp_.path() / "metrics.jsonl";
};

TEST_F(MetricsFileTest, ALineIsThereAsSoonAsItIsAppended) {
  MetricsFile file(path_, 0);
  file.append(record(1));
  EXPECT_EQ(steps_in(path_), (Steps{1}));
  file.append(record(2));
  EXPECT_EQ(steps_in(path_), (Steps{1, 2}));
}

TEST_F(MetricsFileTest, CreatesItsDirectory) {
  MetricsFile file(temp_.path() / "a/b/metrics.jsonl", 0);
  file.append(record(1));
  EXPECT_EQ(steps_in(temp_.path() / "a/b/metrics.jsonl"), (Steps{1}));
}

TEST_F(MetricsFileTest, ResumeDropsTheStepsThatAreDoneAgain) {
  write_steps(5);
  MetricsFile file(path_, 3);
  EXPECT_EQ(steps_in(path_), (Steps{1, 2, 3}));
  file.append(record(4));
  EXPECT_EQ(steps_in(path_), (Steps{1, 2, 3, 4}));
}

TEST_F(MetricsFileTest, ResumeAtTheEndKeepsAll) {
  write_steps(3);
  const std::string before = read_text(path_);
  MetricsFile file(path_, 3);
  EXPECT_EQ(read_text(path_), before);
}

TEST_F(MetricsFileTest, ANewRunStartsAnew) {
  write_steps(3);
  MetricsFile file(path_, 0);
  EXPECT_EQ(read_text(path_), "");
}

TEST_F(MetricsFileTest, ALineCutShortIsDropped) {
  write_steps(2);
  temp_.write_text("metrics.jsonl", read_text(path_) + "{\"step\":3,\"lo");
  MetricsFile file(path_, 3);
  file.append(record(3));
  EXPECT_EQ(steps_in(path_), (Steps{1, 2, 3}));
}

TEST_F(MetricsFileTest, ForeignFileIsLeftAlone) {
  for (const std::string text :
       {"some notes\n", "[1, 2]\n", "{\"epoch\": 1}\n", "{\"step\": \"one\"}\n"}) {
    temp_.write_text("metrics.jsonl", text);
    EXPECT_TRUE(
        says(error_of([&] { MetricsFile file(path_, 1); }), {"metrics.jsonl:1", "not a record"}));
    EXPECT_EQ(read_text(path_), text);
  }
}

TEST_F(MetricsFileTest, DirectoryThatCannotBeMade) {
  temp_.write_text("file", "x");
  EXPECT_TRUE(says(error_of([&] { MetricsFile file(temp_.path() / "file/metrics.jsonl", 0); }),
                   {"file/metrics.jsonl", "metrics.file"}));
}

TEST_F(MetricsFileTest, PathThatIsADirectory) {
  EXPECT_TRUE(says(error_of([&] { MetricsFile file(temp_.path(), 0); }),
                   {temp_.path().string(), "Is a directory"}));
}

TEST_F(MetricsFileTest, DiskFull) {
  MetricsFile file("/dev/full", 0);
  EXPECT_TRUE(says(error_of([&] { file.append(record(1)); }),
                   {"/dev/full", "No space left", "free some disk space"}));
}

}  // namespace
}  // namespace longstride
