#include "ops/linear.h"

#include <algorithm>

#include "base/thread_pool.h"
#include "ops/cpu/gemm.h"
#include "ops/cpu/simd_math.h"
#include "ops/cpu/widen.h"
#include "ops/elementwise.h"

namespace longstride::ops::cpu {
namespace {

constexpr std::int64_t kBiasColumns = 256;

// The weight as F32: itself, or widened into scratch.
const float* weight_as_float(const ConstView& w, const View& scratch) {
  if (w.dtype() == DType::kF32) return w.as<float>();
  LS_CHECK(scratch.present() && scratch.elements() >= w.elements(), "scratch {} for a weight {}",
           scratch.shape().to_string(), w.shape().to_string());
  float* wide = scratch.as<float>();
  widen_all(w, wide);
  return wide;
}

// sum[j] += dy[r, j] over all rows, in double; n <= kBiasColumns.
LS_SIMD_CLONES void add_rows(const float* dy, std::int64_t rows, std::int64_t stride,
                             std::int64_t n, double* sum) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* row = dy + r * stride;
#pragma omp simd
    for (std::int64_t j = 0; j < n; ++j) sum[j] += static_cast<double>(row[j]);
  }
}

void bias_gradient(const float* dy, std::int64_t rows, std::int64_t outputs, float* db) {
  parallel_for(pieces_of(outputs, kBiasColumns), [&](std::int64_t piece) {
    const std::int64_t begin = piece * kBiasColumns, n = std::min(kBiasColumns, outputs - begin);
    double sum[kBiasColumns] = {};
    add_rows(dy + begin, rows, outputs, n, sum);
    for (std::int64_t j = 0; j < n; ++j) db[begin + j] += static_cast<float>(sum[j]);
  });
}

}  // namespace

std::int64_t linear_scratch_elements(const LinearShape& shape) {
  return shape.w_OI.dtype() == DType::kF32 ? 0 : shape.w_OI.elements();
}

void linear_forward(Stream& stream, const LinearForward& args) {
  const Shape &x = args.x_RI.shape(), &w = args.w_OI.shape();
  Gemm g;
  g.trans_b = Trans::kYes;
  g.m = x[0], g.n = w[0], g.k = x[1];
  g.a = args.x_RI.as<float>(), g.lda = g.k;
  g.b = weight_as_float(args.w_OI, args.scratch), g.ldb = g.k;
  g.c = args.y_RO.as<float>(), g.ldc = g.n;
  if (args.add_RO.present()) {
    cpu::convert(stream, {args.add_RO, args.y_RO});
    g.accumulate = true;
  }
  if (args.b_O.present()) g.bias = args.b_O;
  gemm(g);
}

void linear_backward(Stream&, const LinearBackward& args) {
  const std::int64_t R = args.dy_RO.dim(0), O = args.dy_RO.dim(1);
  const float* dy = args.dy_RO.as<float>();
  if (args.dx_RI.present()) {
    Gemm g;
    g.m = R, g.n = args.dx_RI.dim(1), g.k = O;
    g.a = dy, g.lda = O;
    g.b = weight_as_float(args.w_OI, args.scratch), g.ldb = g.n;
    g.c = args.dx_RI.as<float>(), g.ldc = g.n;
    g.accumulate = args.accumulate_dx;
    gemm(g);
  }
  if (args.dw_OI.present()) {
    Gemm g;
    g.trans_a = Trans::kYes;
    g.m = O, g.n = args.dw_OI.dim(1), g.k = R;
    g.a = dy, g.lda = O;
    g.b = args.x_RI.as<float>(), g.ldb = g.n;
    g.c = args.dw_OI.as<float>(), g.ldc = g.n;
    g.accumulate = true;
    gemm(g);
  }
  if (args.db_O.present()) bias_gradient(dy, R, O, args.db_O.as<float>());
}

}  // namespace longstride::ops::cpu
