#include "ops/optimizer.h"

#include <algorithm>
#include <cmath>

#include "base/thread_pool.h"
#include "ops/adamw_factors.h"
#include "ops/cpu/adamw_8bit.h"
#include "ops/cpu/simd_math.h"
#include "ops/cpu/stochastic_narrow.h"
#include "ops/cpu/widen.h"
#include "tensor/stochastic_weight.h"

namespace longstride::ops::cpu {
namespace {

LS_SIMD_CLONES double sum_of_squares_piece(const float* g, std::int64_t n) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < n; ++i) sum += static_cast<double>(g[i]) * static_cast<double>(g[i]);
  return sum;
}

LS_SIMD_CLONES void adamw_piece(const AdamWFactors& factors, const float* g, std::int64_t n,
                                float* p, float* m, float* v) {
  const AdamWFactors f = factors;
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    const float gradient = g[i] * f.grad_scale;
    m[i] = f.beta1 * m[i] + f.one_minus_beta1 * gradient;
    v[i] = f.beta2 * v[i] + f.one_minus_beta2 * gradient * gradient;
    p[i] = f.keep * p[i] - f.step * m[i] / (std::sqrt(v[i]) * f.root_scale + f.eps);
  }
}

}  // namespace

void sum_of_squares(Stream&, const SumOfSquares& args) {
  constexpr std::int64_t kPartials = 256;
  const float* g = args.g.as<float>();
  double* sum = args.sum_1.as<double>();
  const std::int64_t elements = args.g.elements(), pieces = pieces_of(elements);
  double partial[kPartials];
  for (std::int64_t first = 0; first < pieces; first += kPartials) {
    const std::int64_t count = std::min(kPartials, pieces - first);
    parallel_for(count, [&](std::int64_t k) {
      const std::int64_t i = (first + k) * kPiece;
      partial[k] = sum_of_squares_piece(g + i, std::min(kPiece, elements - i));
    });
    for (std::int64_t k = 0; k < count; ++k) *sum += partial[k];
  }
}

void adamw(Stream&, const AdamW& args) {
  if (args.m_absmax.present()) return adamw_8bit(args);
  const AdamWFactors factors = adamw_factors(args);
  const float* g = args.g.as<float>();
  float *m = args.m.as<float>(), *v = args.v.as<float>();
  const std::int64_t elements = args.g.elements();
  if (!args.master.present()) {
    parallel_for(pieces_of(elements), [&](std::int64_t piece) {
      const std::int64_t end = std::min((piece + 1) * kPiece, elements);
      float p[kRoundingRow];
      for (std::int64_t i = piece * kPiece; i < end; i += kRoundingRow) {
        const std::int64_t n = std::min(kRoundingRow, end - i);
        widen(args.weight, i, n, p);
        adamw_piece(factors, g + i, n, p, m + i, v + i);
        narrow_stochastically(p, n, args.weight, i, args.rounding_key, args.first_element + i);
      }
    });
    return;
  }
  float* master = args.master.as<float>();
  parallel_for(pieces_of(elements), [&](std::int64_t piece) {
    const std::int64_t i = piece * kPiece, n = std::min(kPiece, elements - i);
    adamw_piece(factors, g + i, n, master + i, m + i, v + i);
    if (args.weight.present()) narrow(master + i, n, args.weight, i);
  });
}

}  // namespace longstride::ops::cpu
