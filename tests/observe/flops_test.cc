#include "observe/flops.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace longstride {
namespace {

// By counting every (query, key) pair.
double counted(std::int64_t length, std::int64_t window) {
  double keys = 0;
  for (std::int64_t q = 0; q < length; ++q)
    for (std::int64_t k = 0; k <= q; ++k) keys += window == 0 || q - k < window;
  return keys;
}

TEST(Flops, VisibleKeysAreThoseCounted) {
  for (std::int64_t length : {0, 1, 2, 7, 64, 100})
    for (std::int64_t window : {0, 1, 2, 7, 63, 64, 65, 1000})
      EXPECT_EQ(visible_keys(length, window), counted(length, window)) << length << " " << window;
}

TEST(Flops, MatrixProducts) {
  const std::int64_t lengths[] = {10, 5};
  EXPECT_EQ(model_flops({.matrix_parameters = 1000}, lengths), 6.0 * 1000 * 15);
}

TEST(Flops, AttentionOfPackedDocumentsIsTheSumOfTheirs) {
  const FlopShape shape{.layers = 3, .query_heads = 4, .head_size = 8};
  const std::int64_t both[] = {10, 5};
  EXPECT_EQ(model_flops(shape, both), 3.0 * 3 * 4 * 4 * 8 * (55 + 15));
}

TEST(Flops, WindowsPerLayer) {
  const FlopShape shape{.layers = 2, .query_heads = 1, .head_size = 1, .windows = {0, 4}};
  const std::int64_t lengths[] = {10};
  EXPECT_EQ(model_flops(shape, lengths), 12.0 * (55 + counted(10, 4)));
}

TEST(Flops, DoesNotOverflow) {
  const FlopShape shape{
      .matrix_parameters = 7'000'000'000, .layers = 28, .query_heads = 28, .head_size = 128};
  const std::int64_t lengths[] = {std::int64_t{1} << 24};
  const double tokens = 16777216.0;
  const double expected = 6 * 7e9 * tokens + 12.0 * 28 * 28 * 128 * tokens * (tokens + 1) / 2;
  EXPECT_GT(expected, 9.3e18);
  EXPECT_NEAR(model_flops(shape, lengths) / expected, 1.0, 1e-12);
}

TEST(Flops, ThePeakIsThatOfTheDeviceOrNone) {
  for (const char* name : {"NVIDIA H200", "NVIDIA H100 80GB HBM3", "NVIDIA GH200 480GB"})
    EXPECT_EQ(peak_flops_per_s(name), 989e12) << name;
  for (const char* name : {"NVIDIA H100 PCIe", "NVIDIA H200 NVL", "NVIDIA H200 MIG 1g.18gb",
                           "NVIDIA H20", "NVIDIA A100-SXM4-80GB", "NVIDIA B200", "cpu", ""})
    EXPECT_FALSE(peak_flops_per_s(name).has_value()) << name;
}

}  // namespace
}  // namespace longstride
