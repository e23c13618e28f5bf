#include "ops/rms_norm.h"

#include <algorithm>
#include <cmath>

#include "base/thread_pool.h"
#include "ops/cpu/simd_math.h"
#include "ops/cpu/widen.h"

namespace longstride::ops::cpu {
namespace {

// Rows per block, from the shape alone. Short rows (one head each) make larger blocks.
std::int64_t block_rows(std::int64_t n) {
  return std::clamp<std::int64_t>(32768 / std::max<std::int64_t>(n, 1), 16, 256);
}
constexpr std::int64_t kMaxBlockRows = 256;
// Columns of the weight that are widened at a time.
constexpr std::int64_t kColumns = 512;

}  // namespace

// One partial dw per block of rows.
std::int64_t rms_norm_backward_scratch_elements(const RmsNormShape& shape) {
  return pieces_of(shape.rows, block_rows(shape.n)) * shape.n;
}

namespace {

LS_SIMD_CLONES float sum_of_products(const float* a, const float* b, std::int64_t n) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

LS_SIMD_CLONES float sum_of_products3(const float* a, const float* b, const float* c,
                                      std::int64_t n) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < n; ++i) sum += a[i] * b[i] * c[i];
  return sum;
}

LS_SIMD_CLONES void scale_row(const float* x, const float* w, float scale, std::int64_t n,
                              float* y) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) y[i] = x[i] * scale * w[i];
}

// dx = scale * dy * w - x * along, dw += dy * x * scale.
LS_SIMD_CLONES void backward_row(const float* dy, const float* x, const float* w, float scale,
                                 float along, std::int64_t n, bool accumulate, float* dx,
                                 float* dw) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    const float g = dy[i] * scale;
    const float d = g * w[i] - x[i] * along;
    dw[i] += g * x[i];
    dx[i] = accumulate ? dx[i] + d : d;
  }
}

// Columns [column, column + n) of the factors. An offset of 0 leaves the weights' bits.
void factors(const ConstView& w_N, float offset, std::int64_t column, std::int64_t n, float* to) {
  widen(w_N, column, n, to);
  if (offset == 0.0f) return;
  for (std::int64_t i = 0; i < n; ++i) to[i] += offset;
}

float inverse_rms(const float* x, std::int64_t n, float eps) {
  return 1.0f / std::sqrt(sum_of_products(x, x, n) / static_cast<float>(n) + eps);
}

}  // namespace

void rms_norm_forward(Stream&, const RmsNormForward& args) {
  const std::int64_t R = args.x_RN.dim(0), N = args.x_RN.dim(1), block = block_rows(N);
  const std::int64_t W = args.y_RW.dim(1);
  const float* x = args.x_RN.as<float>();
  float* y = args.y_RW.as<float>();
  parallel_for(pieces_of(R, block), [&](std::int64_t piece) {
    const std::int64_t begin = piece * block, end = std::min(R, begin + block);
    float scale[kMaxBlockRows], w[kColumns];
    for (std::int64_t r = begin; r < end; ++r)
      scale[r - begin] = inverse_rms(x + r * N, N, args.eps);
    for (std::int64_t column = 0; column < N; column += kColumns) {
      const std::int64_t n = std::min(kColumns, N - column);
      factors(args.w_N, args.offset, column, n, w);
      for (std::int64_t r = begin; r < end; ++r) {
        scale_row(x + r * N + column, w, scale[r - begin], n, y + r * W + column);
      }
    }
  });
}

void rms_norm_backward(Stream&, const RmsNormBackward& args) {
  const std::int64_t R = args.x_RN.dim(0), N = args.x_RN.dim(1), block = block_rows(N);
  const float *dy = args.dy_RN.as<float>(), *x = args.x_RN.as<float>();
  float* dx = args.dx_RN.as<float>();
  float* partial = args.scratch.as<float>();
  const std::int64_t blocks = pieces_of(R, block);

  parallel_for(blocks, [&](std::int64_t piece) {
    const std::int64_t begin = piece * block, end = std::min(R, begin + block);
    float* sum = partial + piece * N;
    std::fill_n(sum, N, 0.0f);
    float scale[kMaxBlockRows] = {}, along[kMaxBlockRows] = {}, w[kColumns];
    for (std::int64_t r = begin; r < end; ++r)
      scale[r - begin] = inverse_rms(x + r * N, N, args.eps);
    for (std::int64_t column = 0; column < N; column += kColumns) {
      const std::int64_t n = std::min(kColumns, N - column);
      factors(args.w_N, args.offset, column, n, w);
      for (std::int64_t r = begin; r < end; ++r) {
        const std::int64_t at = r * N + column;
        along[r - begin] += sum_of_products3(dy + at, w, x + at, n);
      }
    }
    // The component of the gradient along x, which the normalisation removes.
    for (std::int64_t i = 0; i < end - begin; ++i) {
      along[i] *= scale[i] * scale[i] * scale[i] / static_cast<float>(N);
    }
    for (std::int64_t column = 0; column < N; column += kColumns) {
      const std::int64_t n = std::min(kColumns, N - column);
      if (N > kColumns) factors(args.w_N, args.offset, column, n, w);
      for (std::int64_t r = begin; r < end; ++r) {
        const std::int64_t at = r * N + column;
        backward_row(dy + at, x + at, w, scale[r - begin], along[r - begin], n, args.accumulate_dx,
                     dx + at, sum + column);
      }
    }
  });

  // The blocks' sums are computed even without dw: so dx has the same bits, and they cost little.
  if (!args.dw_N.present()) return;
  float* dw = args.dw_N.as<float>();
  parallel_for(pieces_of(N, kColumns), [&](std::int64_t piece) {
    const std::int64_t begin = piece * kColumns, n = std::min(kColumns, N - begin);
    double sum[kColumns] = {};
    for (std::int64_t b = 0; b < blocks; ++b) {
      const float* row = partial + b * N + begin;
      for (std::int64_t i = 0; i < n; ++i) sum[i] += static_cast<double>(row[i]);
    }
    for (std::int64_t i = 0; i < n; ++i) dw[begin + i] += static_cast<float>(sum[i]);
  });
}

}  // namespace longstride::ops::cpu
