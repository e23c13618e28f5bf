#include "ops/cpu/small_product.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/random.h"

namespace longstride::ops::cpu {
namespace {

std::vector<float> numbers(std::int64_t n, std::uint64_t stream) {
  Random random(3, stream);
  std::vector<float> x(static_cast<std::size_t>(n));
  for (float& v : x) v = static_cast<float>(random.normal());
  return x;
}

// Every number of rows and columns around the edges of blocks, with gaps between rows; the gaps
// stay untouched.
TEST(SmallProducts, AreWhatTheDefinitionSays) {
  for (const std::int64_t m : {1, 2, 5, 6, 7, 13, 18})
    for (const std::int64_t n : {1, 15, 16, 17, 33, 48, 63, 64, 65, 130})
      for (const std::int64_t k : {1, 3, 40})
        for (const bool trans_a : {false, true})
          for (const bool accumulate : {false, true}) {
            const std::int64_t lda = (trans_a ? m : k) + 2, ldb = n + 3, ldc = n + 1;
            const std::vector<float> a = numbers((trans_a ? k : m) * lda, 1),
                                     b = numbers(k * ldb, 2), before = numbers(m * ldc, 3);
            std::vector<float> c = before;
            const float alpha = accumulate ? 1.0f : -1.5f;
            small_product(
                {trans_a, accumulate, m, n, k, alpha, a.data(), lda, b.data(), ldb, c.data(), ldc});
            for (std::int64_t i = 0; i < m; ++i) {
              for (std::int64_t j = 0; j < n; ++j) {
                double sum = 0;
                for (std::int64_t x = 0; x < k; ++x)
                  sum +=
                      static_cast<double>(a[trans_a ? x * lda + i : i * lda + x]) * b[x * ldb + j];
                const double want = accumulate ? before[i * ldc + j] + sum : alpha * sum;
                ASSERT_NEAR(c[i * ldc + j], want, 1e-5 * (1 + std::fabs(want)))
                    << m << " " << n << " " << k << " at " << i << " " << j;
              }
              ASSERT_EQ(c[i * ldc + n], before[i * ldc + n]);
            }
          }
}

TEST(SmallProducts, Transpose) {
  for (const std::int64_t rows : {1, 15, 16, 17, 50})
    for (const std::int64_t columns : {1, 16, 31, 64}) {
      const std::vector<float> from = numbers(rows * (columns + 2), 4);
      std::vector<float> to(static_cast<std::size_t>(columns * (rows + 1)), -1.0f);
      transpose(from.data(), columns + 2, rows, columns, to.data(), rows + 1);
      for (std::int64_t c = 0; c < columns; ++c) {
        for (std::int64_t r = 0; r < rows; ++r)
          ASSERT_EQ(to[c * (rows + 1) + r], from[r * (columns + 2) + c]) << rows << " " << columns;
        ASSERT_EQ(to[c * (rows + 1) + rows], -1.0f);
      }
    }
}

}  // namespace
}  // namespace longstride::ops::cpu
