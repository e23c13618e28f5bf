#include "ops/cpu/gemm.h"

#include <algorithm>
#include <cstdlib>

#include "base/thread_pool.h"
#include "ops/cpu/widen.h"

namespace longstride::ops::cpu {
namespace {

constexpr std::int64_t kMaxBlockColumns = 4096;

struct Block {
  std::int64_t m, n;
};
Block choose_block(std::int64_t m, std::int64_t n) {
  static const std::int64_t bm = std::getenv("BM") ? std::atol(std::getenv("BM")) : 256;
  static const std::int64_t bn = std::getenv("BN") ? std::atol(std::getenv("BN")) : 512;
  (void)m;(void)n;
  return {bm, bn};
}

}  // namespace

void gemm(const Gemm& g) {
  const Block block = choose_block(g.m, g.n);
  const std::int64_t rows = (g.m + block.m - 1) / block.m, columns = (g.n + block.n - 1) / block.n;
  parallel_for(rows * columns, [&](std::int64_t index) {
    const std::int64_t i = index / columns * block.m, j = index % columns * block.n;
    const std::int64_t m = std::min(block.m, g.m - i), n = std::min(block.n, g.n - j);
    float* c = g.c + i * g.ldc + j;
    if (g.bias.present()) {
      float bias[kMaxBlockColumns];
      widen(g.bias, j, n, bias);
      for (std::int64_t r = 0; r < m; ++r) {
        float* row = c + r * g.ldc;
        if (g.accumulate) {
          for (std::int64_t s = 0; s < n; ++s) row[s] += bias[s];
        } else {
          std::copy_n(bias, n, row);
        }
      }
    }
    const bool keep = g.accumulate || g.bias.present();
    sgemm(g.trans_a, g.trans_b, m, n, g.k, 1.0f, g.a + (g.trans_a == Trans::kYes ? i : i * g.lda),
          g.lda, g.b + (g.trans_b == Trans::kYes ? j * g.ldb : j), g.ldb, keep ? 1.0f : 0.0f, c,
          g.ldc);
  });
}

}  // namespace longstride::ops::cpu
