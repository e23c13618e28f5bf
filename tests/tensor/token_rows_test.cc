#include "tensor/token_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "base/random.h"

namespace longstride {
namespace {

std::vector<TokenGroup> groups_of(const TokenRows& rows) {
  return {rows.groups().begin(), rows.groups().end()};
}
std::vector<std::int32_t> rows_of(const TokenRows& rows) {
  return {rows.rows().begin(), rows.rows().end()};
}

TEST(TokenRows, OfOneTokenAreTogetherAndInOrder) {
  TokenRows rows;
  rows.build(std::vector<std::int32_t>{7, 3, 7, 9, 3, 7});
  EXPECT_EQ(rows_of(rows), (std::vector<std::int32_t>{1, 4, 0, 2, 5, 3}));
  EXPECT_EQ(groups_of(rows), (std::vector<TokenGroup>{{7, 2, 3, 0}, {3, 0, 2, 1}, {9, 5, 1, 3}}));
}

TEST(TokenRows, NothingIsLeftOfTheChunkBefore) {
  TokenRows rows;
  rows.build(std::vector<std::int32_t>{1, 2, 3});
  rows.build(std::vector<std::int32_t>{5});
  EXPECT_EQ(groups_of(rows), (std::vector<TokenGroup>{{5, 0, 1, 0}}));
  EXPECT_EQ(rows_of(rows), (std::vector<std::int32_t>{0}));
  rows.build({});
  EXPECT_TRUE(rows.groups().empty());
  EXPECT_TRUE(rows.rows().empty());
}

TEST(TokenRows, HoldEveryRowOnceUnderItsToken) {
  Random random(3);
  std::vector<std::int32_t> tokens(5000);
  for (std::int32_t& token : tokens) token = static_cast<std::int32_t>(random.below(300));
  TokenRows rows;
  rows.build(tokens);
  std::vector<int> times(tokens.size());
  for (const TokenGroup& group : rows.groups()) {
    const auto of_group = rows.rows().subspan(static_cast<std::size_t>(group.begin),
                                              static_cast<std::size_t>(group.count));
    EXPECT_TRUE(std::ranges::is_sorted(of_group));
    EXPECT_EQ(of_group.front(), group.first);
    for (const std::int32_t row : of_group) {
      EXPECT_EQ(tokens[static_cast<std::size_t>(row)], group.token);
      ++times[static_cast<std::size_t>(row)];
    }
  }
  EXPECT_EQ(times, std::vector<int>(tokens.size(), 1));
  EXPECT_TRUE(std::ranges::is_sorted(rows.groups(), std::greater{}, &TokenGroup::count));
}

}  // namespace
}  // namespace longstride
