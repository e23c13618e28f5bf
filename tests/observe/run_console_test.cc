#include "observe/run_console.h"

#include <gtest/gtest.h>

#include "base/log.h"

namespace longstride {
namespace {

ConsoleProgress at(double done) {
  return {
      .step = 12, .total_steps = 100, .phase = "backward", .chunk = 16, .chunks = 32, .done = done};
}

TEST(RunConsole, SaysWhereAStepIs) {
  EXPECT_EQ(describe_progress(at(0.01), 5), "step 12/100: backward, chunk 17/32, 0:05");
  ConsoleProgress progress = at(0.25);
  EXPECT_EQ(describe_progress(progress, 41), "step 12/100: backward, chunk 17/32, 0:41<2:03");
  progress.sequences = 4;
  EXPECT_EQ(describe_progress(progress, 41),
            "step 12/100: sequence 1/4, backward, chunk 17/32, 0:41<2:03");
}

TEST(RunConsole, MessagesStandAboveTheLine) {
  std::string out;
  {
    RunConsole console(std::make_unique<ProgressBar>(
        ProgressOptions{.total = 1000, .terminal = true, .columns = 40},
        [&](std::string_view text) { out += text; }));
    console.update(at(0));
    out.clear();
    log_info("saved");
    EXPECT_TRUE(out.starts_with("\r\x1b[Ksaved\n\r[")) << out;
    out.clear();
    console.end_step("step 12/100  loss 1");
    EXPECT_EQ(out, "\r\x1b[Kstep 12/100  loss 1\n");
    out.clear();
  }
  log_text("");  // goes to stderr again
  EXPECT_EQ(out, "");
}

TEST(RunConsole, OffATerminalShortStepsSayNothing) {
  std::string out;
  auto now = ProgressBar::Clock::time_point{};
  RunConsole console(std::make_unique<ProgressBar>(
      ProgressOptions{.total = 1000, .terminal = false},
      [&](std::string_view text) { out += text; }, [&] { return now; }));
  console.update(at(0.1));
  EXPECT_EQ(out, "");
  now += std::chrono::seconds(61);
  console.update(at(0.2));
  EXPECT_TRUE(out.starts_with("step 12/100: backward, chunk 17/32")) << out;
}

}  // namespace
}  // namespace longstride
