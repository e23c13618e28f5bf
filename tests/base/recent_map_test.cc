#include "base/recent_map.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace longstride {
namespace {

TEST(RecentMap, DropsWhatWasUsedLongestAgo) {
  RecentMap<int, std::string> map(3);
  map.add(1, "one");
  map.add(2, "two");
  EXPECT_FALSE(map.full());
  map.add(3, "three");
  EXPECT_TRUE(map.full());
  EXPECT_EQ(*map.find(1), "one");
  map.drop_oldest();  // 2
  EXPECT_EQ(map.find(2), nullptr);
  map.add(4, "four");
  map.drop_oldest();  // 3
  EXPECT_EQ(map.find(3), nullptr);
  EXPECT_NE(map.find(1), nullptr);
  EXPECT_NE(map.find(4), nullptr);
  EXPECT_EQ(map.size(), 2u);
}

TEST(RecentMap, ValuesStayWhereTheyAre) {
  RecentMap<int, std::unique_ptr<int>> map(100);
  std::unique_ptr<int>& first = map.add(0, std::make_unique<int>(7));
  for (int i = 1; i < 100; ++i) map.add(i, std::make_unique<int>(i));
  EXPECT_EQ(map.find(0), &first);
  while (map.size() > 1) map.drop_oldest();
  EXPECT_EQ(*first, 7);
  map.clear();
  EXPECT_EQ(map.find(0), nullptr);
}

TEST(RecentMap, RefusesAnotherEntryWhereItIsFull) {
  RecentMap<int, int> map(1);
  map.add(1, 1);
  EXPECT_THROW(map.add(2, 2), InternalError);
}

}  // namespace
}  // namespace longstride
