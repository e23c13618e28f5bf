// Walks the work of every block of the CUDA kernel without a GPU: each column of each token must
// belong to exactly one thread.
#include "ops/cuda/embedding_work.h"

#include <gtest/gtest.h>

#include <vector>

namespace longstride::ops::cuda {
namespace {

struct Done {
  std::vector<int> slices;  // [long group][slice]
  std::vector<int> pieces;  // [group][piece]
  int most_visits = 0, fewest_visits = 1 << 30;

  explicit Done(const EmbeddingWork& w)
      : slices(static_cast<std::size_t>(w.items())),
        pieces(static_cast<std::size_t>(w.groups * w.pieces)) {
    for (int block = 0; block < w.blocks; ++block) {
      for (int piece = 0; piece < w.pieces; ++piece) {
        for (int i = w.first_item(block, piece); i < w.items(); i += w.item_stride())
          ++slices[static_cast<std::size_t>(i)];
        int visits = 0;
        for (EmbeddingWork::Visit v = w.first(block); v.group < w.groups;
             v = w.after(v, block), ++visits)
          ++pieces[static_cast<std::size_t>(v.group * w.pieces + piece)];
        most_visits = std::max(most_visits, visits);
        fewest_visits = std::min(fewest_visits, visits);
      }
    }
  }
};

void expect_once(const EmbeddingWork& w) {
  const Done done(w);
  for (std::size_t i = 0; i < done.slices.size(); ++i)
    ASSERT_EQ(done.slices[i], 1) << "item " << i << " of " << w.long_groups << " x " << w.slices
                                 << " on " << w.blocks << " x " << w.pieces;
  for (std::size_t i = 0; i < done.pieces.size(); ++i)
    ASSERT_EQ(done.pieces[i], static_cast<int>(i) / w.pieces < w.long_groups ? 0 : 1)
        << "group " << static_cast<int>(i) / w.pieces << " of " << w.groups << ", " << w.long_groups
        << " long, on " << w.blocks << " x " << w.pieces;
}

TEST(EmbeddingWork, EveryColumnOfEveryTokenIsAddedOnce) {
  for (const int groups : {1, 2, 7, 100, 3277})
    for (const int long_groups : {0, 1, 2, 5, 60})
      for (const int longest : {65, 819, 4096})
        for (const int blocks : {1, 3, 28, 264})
          for (const int pieces : {1, 2, 5})
            for (const int slices : {1, 9, 56})
              if (long_groups <= groups)
                expect_once({groups, long_groups, longest, blocks, pieces, slices});
}

TEST(EmbeddingWork, BlocksWithSlicesOfALongTokenVisitFewerOthers) {
  // 4096 tokens of a 7B model on 132 SMs, one of them a fifth of all.
  const EmbeddingWork usual(4096, 0, 0, 264, 2, 56), skewed(3278, 1, 819, 264, 2, 56);
  EXPECT_EQ(Done(usual).most_visits - Done(usual).fewest_visits, 1);
  EXPECT_EQ(skewed.busy, 28);
  EXPECT_EQ(skewed.head_start, 3);
  EXPECT_GE(Done(skewed).most_visits - Done(skewed).fewest_visits, 3);
  EXPECT_LE(Done(skewed).most_visits - Done(skewed).fewest_visits, 4);
}

}  // namespace
}  // namespace longstride::ops::cuda
