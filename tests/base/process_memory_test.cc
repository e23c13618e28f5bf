#include "base/process_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>

namespace longstride {
namespace {

TEST(ProcessMemory, PeakFollowsWhatIsTouched) {
  constexpr std::int64_t kBytes = 64 << 20;
  const bool reset = reset_peak_resident_bytes();
  const std::int64_t before = peak_resident_bytes();
  EXPECT_GT(resident_bytes(), 0);
  // Directly from the kernel: an allocator, or a sanitizer in it, might keep freed memory.
  void* block = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(block, MAP_FAILED);
  std::memset(block, 1, kBytes);
  EXPECT_GE(resident_bytes(), kBytes);
  ::munmap(block, kBytes);
  EXPECT_GE(peak_resident_bytes(), before + kBytes / 2);
  if (reset) {
    ASSERT_TRUE(reset_peak_resident_bytes());
    EXPECT_LT(peak_resident_bytes(), before + kBytes / 2);
  }
}

}  // namespace
}  // namespace longstride
