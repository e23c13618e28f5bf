#include "ops/cpu/adamw_8bit.h"

#include <algorithm>
#include <cmath>

#include "base/thread_pool.h"
#include "ops/adamw_factors.h"
#include "ops/cpu/simd_math.h"
#include "ops/cpu/stochastic_narrow.h"
#include "ops/cpu/widen.h"
#include "tensor/dynamic_code.h"

namespace longstride::ops::cpu {
namespace {

// A block's moments and p in F32.
struct Block {
  float m[kCodeBlock], v[kCodeBlock], p[kCodeBlock];
};

template <bool kSigned>
void decode(const DynamicCode<kSigned>& code, const std::uint8_t* codes, float absmax,
            std::int64_t n, float* to) {
  for (std::int64_t i = 0; i < n; ++i) to[i] = code.values[codes[i]] * absmax;
}

template <bool kSigned>
float encode(const DynamicCode<kSigned>& code, const float* from, std::int64_t n,
             std::uint8_t* codes) {
  float absmax = 0;
  for (std::int64_t i = 0; i < n; ++i) absmax = std::max(absmax, std::fabs(from[i]));
  const float scale = code_scale(absmax);
  for (std::int64_t i = 0; i < n; ++i) codes[i] = code.nearest(from[i] * scale);
  return absmax;
}

// The fused products are written out, so that a GPU computes the same moments.
LS_SIMD_CLONES void update_block(const AdamWFactors& factors, const float* g, std::int64_t n,
                                 float* p, float* m, float* v) {
  const AdamWFactors f = factors;
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    const float d = g[i] * f.grad_scale;
    m[i] = std::fma(f.beta1, m[i], f.one_minus_beta1 * d);
    v[i] = std::fma(f.beta2, v[i], f.one_minus_beta2 * d * d);
    p[i] =
        std::fma(f.keep, p[i], -(f.step * m[i]) / std::fma(std::sqrt(v[i]), f.root_scale, f.eps));
  }
}

}  // namespace

void adamw_8bit(const AdamW& args) {
  const AdamWFactors factors = adamw_factors(args);
  const float* g = args.g.as<float>();
  auto *m = args.m.as<std::uint8_t>(), *v = args.v.as<std::uint8_t>();
  float *m_absmax = args.m_absmax.as<float>(), *v_absmax = args.v_absmax.as<float>();
  const View& from = args.master.present() ? args.master : args.weight;
  const std::int64_t elements = args.g.elements();
  static_assert(kPiece % kCodeBlock == 0);
  parallel_for(pieces_of(elements), [&](std::int64_t piece) {
    const std::int64_t end = std::min((piece + 1) * kPiece, elements);
    Block block;
    for (std::int64_t i = piece * kPiece; i < end; i += kCodeBlock) {
      const std::int64_t n = std::min(kCodeBlock, end - i), at = i / kCodeBlock;
      decode(kSignedCode, m + i, m_absmax[at], n, block.m);
      decode(kUnsignedCode, v + i, v_absmax[at], n, block.v);
      widen(from, i, n, block.p);
      update_block(factors, g + i, n, block.p, block.m, block.v);
      m_absmax[at] = encode(kSignedCode, block.m, n, m + i);
      v_absmax[at] = encode(kUnsignedCode, block.v, n, v + i);
      if (!args.master.present()) {
        narrow_stochastically(block.p, n, args.weight, i, args.rounding_key,
                              args.first_element + i);
        continue;
      }
      std::copy_n(block.p, n, args.master.as<float>() + i);
      if (args.weight.present()) narrow(block.p, n, args.weight, i);
    }
  });
}

}  // namespace longstride::ops::cpu
