// `auto` fell back to the CPU without a word, however slow that is.
#include "device/device.h"
#include "device/why_no_cuda.h"
#include "tests/cli/run_directory.h"

namespace longstride {
namespace {

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++found;
  return found;
}

TEST(AutoDevice, SaysOnceWhyItIsTheCpu) {
  if (cuda_is_available()) GTEST_SKIP() << "this machine has a GPU";
  ASSERT_NE(why_no_cuda(), "");
  const std::string line = "device auto is the CPU: " + why_no_cuda();
  const RunDirectory run;
  const ProgramResult result = run.train({"--device", "auto", "--training.steps=1"});
  EXPECT_TRUE(ended(result, 0));
  EXPECT_EQ(count(result.err, line), 1) << result.err;
  EXPECT_EQ(count(run.train({"--dry-run", "--checkpoint.directory=other"}).err, line), 0);
}

}  // namespace
}  // namespace longstride
