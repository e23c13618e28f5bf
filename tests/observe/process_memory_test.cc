#include "observe/process_memory.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>

namespace longstride {
namespace {

TEST(ProcessMemory, PeakFollowsWhatIsTouched) {
  constexpr std::int64_t kBytes = 64 << 20;
  const bool reset = reset_peak_resident_bytes();
  const std::int64_t before = peak_resident_bytes();
  EXPECT_GT(resident_bytes(), 0);
  {
    const auto block = std::make_unique_for_overwrite<char[]>(kBytes);
    std::memset(block.get(), 1, kBytes);
    EXPECT_EQ(block[kBytes / 2], 1);
    EXPECT_GE(resident_bytes(), kBytes);
  }
  EXPECT_GE(peak_resident_bytes(), before + kBytes / 2);
  if (reset) {
    ASSERT_TRUE(reset_peak_resident_bytes());
    EXPECT_LT(peak_resident_bytes(), before + kBytes / 2);
  }
}

}  // namespace
}  // namespace longstride
