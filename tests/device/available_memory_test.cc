#include "device/cpu/available_memory.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace longstride {
namespace {

namespace fs = std::filesystem;

// A fake /proc and /sys.
class AvailableMemory : public testing::Test {
 protected:
  void SetUp() override {
    root_ =
        fs::path(testing::TempDir()) /
        ("memory-" + std::string(testing::UnitTest::GetInstance()->current_test_info()->name()));
    fs::remove_all(root_);
    write("proc/meminfo", "MemTotal:       1000 kB\nMemFree:  1 kB\nMemAvailable:    800 kB\n");
  }
  void TearDown() override { fs::remove_all(root_); }
  void write(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  fs::path root_;
};

TEST_F(AvailableMemory, IsTheMachinesWithoutCgroups) {
  EXPECT_EQ(available_memory(root_), 800 * 1024);
}

TEST_F(AvailableMemory, HeedsVersion2AndDoesNotCountCache) {
  write("proc/self/cgroup", "0::/user/job\n");
  write("sys/fs/cgroup/user/job/memory.max", "500000\n");
  write("sys/fs/cgroup/user/job/memory.current", "300000\n");
  EXPECT_EQ(available_memory(root_), 200000);
  write("sys/fs/cgroup/user/job/memory.stat", "anon 1\ninactive_file 50000\nactive_file 10000\n");
  EXPECT_EQ(available_memory(root_), 260000);
}

TEST_F(AvailableMemory, HeedsTheGroupsAbove) {
  write("proc/self/cgroup", "0::/user/job\n");
  write("sys/fs/cgroup/user/job/memory.max", "max\n");
  write("sys/fs/cgroup/user/job/memory.current", "1000\n");
  write("sys/fs/cgroup/user/memory.max", "400000\n");
  write("sys/fs/cgroup/user/memory.current", "390000\n");
  EXPECT_EQ(available_memory(root_), 10000);
}

TEST_F(AvailableMemory, HeedsVersion1) {
  write("proc/self/cgroup", "5:cpu,memory:/docker/x\n3:cpuset:/\n0::/\n");
  write("sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes", "100000\n");
  write("sys/fs/cgroup/memory/docker/x/memory.usage_in_bytes", "60000\n");
  write("sys/fs/cgroup/memory/docker/x/memory.stat", "inactive_file 9\ntotal_inactive_file 5000\n");
  // No limit, as cgroup v1 writes it.
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  write("sys/fs/cgroup/memory/memory.usage_in_bytes", "60000\n");
  EXPECT_EQ(available_memory(root_), 45000);
}

TEST_F(AvailableMemory, FindsTheLimitAtTheMountPointInAContainer) {
  write("proc/self/cgroup", "4:memory:/docker/not/visible/here\n");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "100000\n");
  write("sys/fs/cgroup/memory/memory.usage_in_bytes", "10000\n");
  EXPECT_EQ(available_memory(root_), 90000);
}

TEST_F(AvailableMemory, IsNeverNegative) {
  write("proc/self/cgroup", "0::/\n");
  write("sys/fs/cgroup/memory.max", "1000\n");
  write("sys/fs/cgroup/memory.current", "2000\n");
  EXPECT_EQ(available_memory(root_), 0);
}

TEST(ResidentMemory, IsMeasured) { EXPECT_GT(resident_anonymous_memory(), 0); }

}  // namespace
}  // namespace longstride
