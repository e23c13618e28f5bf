// The sizes of quantized matrices, and what cannot be done with them.
#include "tensor/block_formats.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tensor/dynamic_code.h"

namespace longstride {
namespace {

TEST(BlockFormats, PartsFollowEachOtherAligned) {
  // 51 elements: 26 bytes of codes, one block.
  const BlockRecord small = block_record(DType::kNf4, {3, 17});
  EXPECT_EQ(small.codes.bytes, 26);
  EXPECT_EQ(small.scales.offset, 32);
  EXPECT_EQ(small.scales.bytes, 1);
  EXPECT_EQ(small.nested.offset, 48);
  EXPECT_EQ(small.nested.bytes, 4);
  EXPECT_EQ(small.offset.offset, 64);
  EXPECT_EQ(small.bytes, 80);
  EXPECT_EQ(bytes_of(DType::kNf4, {3, 17}), 80);
  EXPECT_EQ(bytes_of(DType::kNf4Wide, {3, 17}), 48);
  EXPECT_EQ(bytes_of(DType::kInt8Rows, {3, 17}), 64 + 16);
  // Of the largest matrix of a 7B model: half a byte, a 64th and next to nothing per element.
  const Shape large{18944, 3584};
  EXPECT_EQ(block_record(DType::kNf4, large).nested.bytes, 4 * 4144);
  EXPECT_EQ(bytes_of(DType::kNf4, large),
            large.elements() / 2 + large.elements() / 64 + 4 * 4144 + 16);
  EXPECT_EQ(bytes_of(DType::kBF16, large), 2 * large.elements());
}

TEST(BlockFormats, HaveNoElements) {
  EXPECT_THROW(size_of(DType::kNf4), InternalError);
  EXPECT_THROW(bytes_of(DType::kNf4, {64}), InternalError);
  const View q(nullptr, DType::kInt8Rows, {4, 8});
  EXPECT_EQ(q.bytes(), 32 + 16);
  EXPECT_THROW(q.rows(0, 2), InternalError);
  EXPECT_THROW(q.reshaped({32}), InternalError);
}

TEST(BlockFormats, TheDynamicMapAscends) {
  EXPECT_TRUE(std::ranges::is_sorted(kDynamicMap));
  EXPECT_EQ(kDynamicMap[127], 0.0f);
  EXPECT_EQ(kDynamicMap[255], 1.0f);
  EXPECT_EQ(kDynamicMap[0], -kDynamicMap[254]);
}

}  // namespace
}  // namespace longstride
