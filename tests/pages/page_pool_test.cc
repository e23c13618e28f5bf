#include "pages/page_pool.h"

#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "base/random.h"

namespace longstride {
namespace {

class PagePools : public ::testing::Test {
 protected:
  std::unique_ptr<Device> device_ = make_cpu_device();
};

TEST_F(PagePools, GivesTheLowestSlotFirst) {
  PagePool pool(*device_, 512, 5, "pages");
  for (std::int32_t slot = 0; slot < 5; ++slot) EXPECT_EQ(pool.take(), slot);
  for (const std::int32_t slot : {3, 0, 4, 1}) pool.give(slot);
  for (const std::int32_t slot : {0, 1, 3, 4}) EXPECT_EQ(pool.take(), slot);
}

TEST_F(PagePools, LowestFirstOnRandomTraffic) {
  PagePool pool(*device_, 8, 50, "pages");
  std::set<std::int32_t> free, used;
  for (std::int32_t slot = 0; slot < 50; ++slot) free.insert(slot);
  Random random(41);
  std::int64_t peak = 0;
  for (int i = 0; i < 5000; ++i) {
    if (used.empty() || (!free.empty() && random.below(2) == 0)) {
      const std::int32_t slot = pool.take();
      ASSERT_EQ(slot, *free.begin());
      free.erase(slot);
      used.insert(slot);
    } else {
      const auto at =
          std::next(used.begin(), static_cast<std::ptrdiff_t>(random.below(used.size())));
      pool.give(*at);
      free.insert(*at);
      used.erase(at);
    }
    peak = std::max(peak, static_cast<std::int64_t>(used.size()));
    ASSERT_EQ(pool.in_use(), static_cast<std::int64_t>(used.size()));
    ASSERT_EQ(pool.peak(), peak);
  }
}

TEST_F(PagePools, TakesItsMemoryOnce) {
  PagePool pool(*device_, 512, 5, "pages");
  EXPECT_EQ(device_->allocated_bytes(), 5 * 512);
  EXPECT_EQ(pool.capacity(), 5);
  EXPECT_EQ(pool.page_bytes(), 512);
  EXPECT_EQ(pool.page(3), pool.base() + 3 * 512);
  for (int i = 0; i < 5; ++i) pool.take();
  EXPECT_EQ(device_->allocated_bytes(), 5 * 512);
}

TEST_F(PagePools, ExhaustionIsABrokenInvariant) {
  PagePool pool(*device_, 512, 2, "KV pages");
  pool.take();
  pool.take();
  try {
    pool.take();
    FAIL() << "nothing was thrown";
  } catch (const InternalError& e) {
    EXPECT_NE(std::string(e.what()).find("KV pages: all 2 pages are in use"), std::string::npos)
        << e.what();
  }
  EXPECT_EQ(pool.in_use(), 2);
  EXPECT_EQ(pool.peak(), 2);
  pool.give(1);
  EXPECT_EQ(pool.take(), 1);
}

TEST_F(PagePools, RefusesASlotThatIsNotTaken) {
  PagePool pool(*device_, 512, 3, "pages");
  EXPECT_THROW(pool.give(0), InternalError);
  pool.take();
  pool.take();
  EXPECT_THROW(pool.give(-1), InternalError);
  EXPECT_THROW(pool.give(3), InternalError);
  EXPECT_THROW(pool.give(2), InternalError);
  pool.give(0);
  EXPECT_THROW(pool.give(0), InternalError);  // twice, while another page is in use
  EXPECT_EQ(pool.in_use(), 1);
  EXPECT_EQ(pool.take(), 0);
  EXPECT_EQ(pool.take(), 2);
}

TEST_F(PagePools, MayBeEmpty) {
  PagePool pool(*device_, 512, 0, "pages");
  EXPECT_EQ(pool.base(), nullptr);
  EXPECT_EQ(device_->allocated_bytes(), 0);
  EXPECT_THROW(pool.take(), InternalError);
}

TEST_F(PagePools, RefusesImpossibleSizes) {
  EXPECT_THROW(PagePool(*device_, 0, 5, "pages"), InternalError);
  EXPECT_THROW(PagePool(*device_, 512, -1, "pages"), InternalError);
  EXPECT_THROW(PagePool(*device_, 1, std::int64_t{1} << 31, "pages"), InternalError);
}

}  // namespace
}  // namespace longstride
