#include "base/serial_worker.h"

#include <gtest/gtest.h>

#include <future>
#include <vector>

namespace longstride {
namespace {

void unexpected(const std::exception_ptr&) { ADD_FAILURE() << "a task has thrown"; }

TEST(SerialWorker, RunsTasksInOrder) {
  std::vector<int> ran;
  std::promise<void> last;
  SerialWorker worker(unexpected);
  for (int i = 0; i < 100; ++i) worker.post([&ran, i] { ran.push_back(i); });
  worker.post([&] { last.set_value(); });
  last.get_future().wait();
  ASSERT_EQ(ran.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(ran[static_cast<std::size_t>(i)], i);
}

TEST(SerialWorker, EndsTheTaskThatRunsAndDropsTheRest) {
  bool ended = false, began_another = false;
  std::promise<void> running;
  {
    SerialWorker worker(unexpected);
    worker.post([&] {
      running.set_value();
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      ended = true;
    });
    worker.post([&] { began_another = true; });
    running.get_future().wait();
  }
  EXPECT_TRUE(ended);
  EXPECT_FALSE(began_another);
}

}  // namespace
}  // namespace longstride
