#include "ops/adapter.h"

#include <algorithm>

#include "base/thread_pool.h"
#include "ops/cpu/gemm.h"
#include "ops/cpu/widen.h"
#include "tensor/dropout_mask.h"

namespace longstride::ops::cpu {
namespace {

constexpr std::int64_t kRows = 16;

// A row-major matrix inside a wider one.
struct Matrix {
  const float* data = nullptr;
  std::int64_t stride = 0;
};

// What u is made of: the input, or what dropout left of it.
Matrix source_of(const ConstView& dropped_TI, const ConstView& xu_TW) {
  return dropped_TI.present() ? Matrix{dropped_TI.as<float>(), dropped_TI.dim(1)}
                              : Matrix{xu_TW.as<float>(), xu_TW.dim(1)};
}

template <class F>
void for_rows(std::int64_t rows, const F& f) {
  parallel_for(pieces_of(rows, kRows), [&](std::int64_t piece) {
    for (std::int64_t r = piece * kRows; r < std::min(rows, (piece + 1) * kRows); ++r) f(r);
  });
}

}  // namespace

void dropout_forward(Stream&, const DropoutForward& args) {
  const std::int64_t T = args.y_TI.dim(0), I = args.y_TI.dim(1), W = args.x_TW.dim(1);
  const DropoutMask mask(args.dropout.key, args.dropout.rate);
  for_rows(T, [&](std::int64_t t) {
    const RowRounding row = mask.row(args.dropout.first_token + t);
    const float* x = args.x_TW.as<float>() + t * W;
    float* y = args.y_TI.as<float>() + t * I;
    for (std::int64_t i = 0; i < I; ++i) y[i] = x[i] * mask.factor(row, i);
  });
}

void adapter_forward(Stream&, const AdapterForward& args) {
  const std::int64_t T = args.xu_TW.dim(0), W = args.xu_TW.dim(1), P = args.a_PI.dim(0),
                     I = args.a_PI.dim(1);
  auto* const xu = args.xu_TW.as<float>();
  if (args.x_TI.present())
    for_rows(T, [&](std::int64_t t) { std::copy_n(args.x_TI.as<float>() + t * I, I, xu + t * W); });
  const Matrix x = source_of(args.dropped_TI, args.xu_TW);
  Gemm g;
  g.trans_b = Trans::kYes;
  g.m = T, g.n = P, g.k = I;
  g.a = x.data, g.lda = x.stride;
  g.b = args.a_PI.as<float>(), g.ldb = I;
  g.c = xu + I, g.ldc = W;
  gemm(g);
}

void adapter_backward(Stream&, const AdapterBackward& args) {
  const std::int64_t T = args.d_TW.dim(0), W = args.d_TW.dim(1), P = args.a_PI.dim(0),
                     I = args.a_PI.dim(1);
  const float* const d = args.d_TW.as<float>();
  if (args.da_RI.present()) {
    const Matrix x = source_of(args.dropped_TI, args.xu_TW);
    Gemm g;
    g.trans_a = Trans::kYes;
    g.m = args.da_RI.dim(0), g.n = I, g.k = T;
    g.a = d + I, g.lda = W;
    g.b = x.data, g.ldb = x.stride;
    g.c = args.da_RI.as<float>(), g.ldc = I;
    g.accumulate = true;
    gemm(g);
  }
  const bool drops = args.dropout.rate > 0;
  auto* const dx = args.dx_TI.as<float>();
  if (!drops) for_rows(T, [&](std::int64_t t) { std::copy_n(d + t * W, I, dx + t * I); });
  Gemm g;
  g.m = T, g.n = I, g.k = P;
  g.a = d + I, g.lda = W;
  g.b = args.a_PI.as<float>(), g.ldb = I;
  g.c = dx, g.ldc = I;
  g.accumulate = !drops;
  gemm(g);
  if (!drops) return;
  const DropoutMask mask(args.dropout.key, args.dropout.rate);
  for_rows(T, [&](std::int64_t t) {
    const RowRounding row = mask.row(args.dropout.first_token + t);
    for (std::int64_t i = 0; i < I; ++i)
      dx[t * I + i] = d[t * W + i] + dx[t * I + i] * mask.factor(row, i);
  });
}

void adapter_gradient(Stream&, const AdapterGradient& args) {
  Gemm g;
  g.trans_a = Trans::kYes;
  g.m = args.db_OR.dim(0), g.n = args.db_OR.dim(1), g.k = args.dy_TO.dim(0);
  g.a = args.dy_TO.as<float>(), g.lda = args.dy_TO.dim(1);
  g.b = args.xu_TW.as<float>() + args.first, g.ldb = args.xu_TW.dim(1);
  g.c = args.db_OR.as<float>(), g.ldc = g.n;
  g.accumulate = true;
  g.scale = static_cast<float>(args.scale);
  gemm(g);
}

void place_columns(Stream&, const PlaceColumns& args) {
  constexpr std::int64_t kTile = 1024;
  const std::int64_t R = args.from_RC.dim(0), C = args.from_RC.dim(1), W = args.to_RW.dim(1);
  const auto scale = static_cast<float>(args.scale);
  for_rows(R, [&](std::int64_t r) {
    float tile[kTile];
    for (std::int64_t c = 0; c < C; c += kTile) {
      const std::int64_t n = std::min(kTile, C - c);
      widen(args.from_RC, r * C + c, n, tile);
      for (std::int64_t i = 0; i < n; ++i) tile[i] *= scale;
      narrow(tile, n, args.to_RW, r * W + args.first + c);
    }
  });
}

}  // namespace longstride::ops::cpu
