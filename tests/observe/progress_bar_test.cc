#include "observe/progress_bar.h"

#include <gtest/gtest.h>

namespace longstride {
namespace {

class ProgressBarTest : public ::testing::Test {
 protected:
  ProgressOptions terminal(int columns = 80) const {
    return {.total = 10, .terminal = true, .columns = columns};
  }
  ProgressOptions plain() const { return {.total = 10, .terminal = false}; }
  auto sink() {
    return [this](std::string_view text) { out_ += text; };
  }
  auto clock() {
    return [this] { return now_; };
  }
  void pass(double seconds) {
    now_ += std::chrono::duration_cast<ProgressBar::Clock::duration>(
        std::chrono::duration<double>(seconds));
  }
  std::string take() { return std::exchange(out_, ""); }

  std::string out_;
  ProgressBar::Clock::time_point now_{};
};

TEST_F(ProgressBarTest, RedrawsOneLineOnATerminal) {
  ProgressBar bar(terminal(), sink(), clock());
  bar.update(1, "loss 3");
  EXPECT_EQ(take(), "\r[==                  ]  10% loss 3\x1b[K");
  pass(1);
  bar.update(5, "loss 2");
  EXPECT_EQ(take(), "\r[==========          ]  50% loss 2\x1b[K");
  bar.update(10, "loss 1");
  EXPECT_EQ(take(), "\r[====================] 100% loss 1\x1b[K");
  bar.finish();
  EXPECT_EQ(take(), "\n");
  bar.finish();
  bar.update(10, "late");
  EXPECT_EQ(take(), "");
}

TEST_F(ProgressBarTest, DoesNotRedrawTooOften) {
  ProgressBar bar(terminal(), sink(), clock());
  bar.update(1, "a");
  take();
  pass(0.01);
  bar.update(2, "b");
  EXPECT_EQ(take(), "");
  bar.finish();
  EXPECT_EQ(take(), "\r[====                ]  20% b\x1b[K\n") << "the last state is shown";
}

TEST_F(ProgressBarTest, NeverWiderThanTheTerminal) {
  ProgressBar bar(terminal(30), sink(), clock());
  bar.update(1, "a long text that does not fit");
  EXPECT_EQ(take(), "\r[==                  ]  10% a\x1b[K");
}

TEST_F(ProgressBarTest, LinesStandAboveTheBar) {
  ProgressBar bar(terminal(), sink(), clock());
  bar.print_line("before");
  EXPECT_EQ(take(), "before\n");
  bar.update(1, "a");
  take();
  bar.print_line("saved");
  EXPECT_EQ(take(), "\r\x1b[Ksaved\n\r[==                  ]  10% a\x1b[K");
}

TEST_F(ProgressBarTest, AnUnfinishedBarEndsItsLine) {
  {
    ProgressBar bar(terminal(), sink(), clock());
    bar.update(1, "a");
    take();
  }
  EXPECT_EQ(take(), "\n");
  { ProgressBar bar(terminal(), sink(), clock()); }
  EXPECT_EQ(take(), "");
}

TEST_F(ProgressBarTest, PlainLinesAtIntervals) {
  ProgressBar bar(plain(), sink(), clock());
  bar.update(1, "step 1");
  EXPECT_EQ(take(), "") << "whoever is quick needs none";
  pass(61);
  bar.update(2, "step 2");
  EXPECT_EQ(take(), "step 2\n");
  pass(30);
  bar.print_line("saved");
  EXPECT_EQ(take(), "saved\n");
  pass(31);
  bar.update(3, "step 3");
  EXPECT_EQ(take(), "") << "another line was less than an interval ago";
  pass(30);
  bar.update(10, "step 10");
  EXPECT_EQ(take(), "step 10\n");
  bar.finish();
  EXPECT_EQ(take(), "");
}

TEST_F(ProgressBarTest, IsTakenOffTheTerminal) {
  ProgressBar bar(terminal(), sink(), clock());
  bar.clear();
  EXPECT_EQ(take(), "");
  bar.update(1, "a");
  take();
  bar.clear();
  EXPECT_EQ(take(), "\r\x1b[K");
  bar.print_line("step");
  EXPECT_EQ(take(), "step\n");
  bar.update(2, "b");
  EXPECT_EQ(take(), "\r[====                ]  20% b\x1b[K");
}

TEST_F(ProgressBarTest, ATotalOfZero) {
  ProgressOptions options = terminal();
  options.total = 0;
  ProgressBar bar(options, sink(), clock());
  bar.update(0, "nothing");
  EXPECT_EQ(take(), "\r[                    ]   0% nothing\x1b[K");
}

}  // namespace
}  // namespace longstride
