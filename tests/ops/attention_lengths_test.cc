#include "ops/cuda/attention_lengths.h"

#include <gtest/gtest.h>

#include <set>

namespace longstride::ops::cuda {
namespace {

TEST(QueryLengths, ChunksOfAFullSequenceStayAsTheyAre) {
  QueryLengths lengths;
  lengths.expect(4096, 1808);
  EXPECT_EQ(lengths.of(4096), 4096);
  EXPECT_EQ(lengths.of(1808), 1808);
  lengths.expect(640, 0);
  EXPECT_EQ(lengths.of(640), 640);
  EXPECT_EQ(lengths.of(600), 640);    // not 1024, for which no workspace was reserved
  EXPECT_EQ(lengths.of(1808), 2048);  // 1808 was of the previous run
}

TEST(QueryLengths, OthersAreFewAndNeverShorter) {
  for (const std::int64_t chunk : {128, 640, 1024, 4096, 16'384, 32'768}) {
    for (const std::int64_t last : {std::int64_t{0}, chunk / 3}) {
      QueryLengths lengths;
      lengths.expect(chunk, last);
      std::set<std::int64_t> met;
      for (std::int64_t queries = 1; queries <= chunk; ++queries) {
        const std::int64_t length = lengths.of(queries);
        ASSERT_GE(length, queries);
        ASSERT_LE(length, filled_up(queries));
        ASSERT_LE(length, chunk);
        met.insert(length);
      }
      EXPECT_LE(static_cast<std::int64_t>(met.size()), chunk / kQueryMultiple + 3) << chunk;
    }
  }
}

TEST(QueryLengths, RoomForAChunkIsRoomForAnyShorterOne) {
  std::int64_t before = 0;
  for (std::int64_t queries = 1; queries < 5000; ++queries) {
    EXPECT_GE(filled_up(queries), before);
    before = filled_up(queries);
  }
}

}  // namespace
}  // namespace longstride::ops::cuda
