#include "ops/rope.h"

#include <algorithm>
#include <cmath>

#include "base/thread_pool.h"
#include "ops/cpu/simd_math.h"
#include "ops/cpu/widen.h"

namespace longstride::ops::cpu {
namespace {

constexpr std::int64_t kTokens = 16;         // tokens per piece of work
constexpr std::int64_t kMaxHeadSize = 1024;  // a head is rotated on the stack

// Rotates one head: pair (i, i + half) by the token's angle i, or back if sign is -1. y may be x.
LS_SIMD_CLONES void rotate(const float* x, const float* cos, const float* sin, float sign,
                           std::int64_t half, float* y) {
#pragma omp simd
  for (std::int64_t i = 0; i < half; ++i) {
    const float a = x[i], b = x[i + half], c = cos[i], s = sign * sin[i];
    y[i] = a * c - b * s;
    y[i + half] = b * c + a * s;
  }
}

// The keys (0) or values (1) of token t in its page, as a tensor.
View row_in_page(const PagesView& pages, std::int64_t t, int plane) {
  std::byte* first = pages.plane(t / pages.page_tokens, plane);
  const std::int64_t row = t % pages.page_tokens * pages.token_stride();
  return {first + row * size_of(pages.dtype), pages.dtype, {pages.row_elements()}};
}

}  // namespace

void rope_tables(Stream&, const RopeTables& args) {
  const std::int64_t T = args.positions_T.dim(0), N = args.frequencies_N.dim(0);
  const std::int64_t* positions = args.positions_T.as<std::int64_t>();
  const double* frequencies = args.frequencies_N.as<double>();
  float *cos = args.cos_TN.as<float>(), *sin = args.sin_TN.as<float>();
  parallel_for(pieces_of(T, kTokens), [&](std::int64_t piece) {
    const std::int64_t end = std::min(T, (piece + 1) * kTokens);
    for (std::int64_t t = piece * kTokens; t < end; ++t) {
      for (std::int64_t i = 0; i < N; ++i) {
        // The product is rounded, to 1e-7 radians at position 2^30; `rest` is the rounding error.
        const auto position = static_cast<double>(positions[t]);
        const double angle = position * frequencies[i];
        const double rest = std::fma(position, frequencies[i], -angle);
        const double c = std::cos(angle), s = std::sin(angle);
        cos[t * N + i] = static_cast<float>((c - rest * s) * args.attention_factor);
        sin[t * N + i] = static_cast<float>((s + rest * c) * args.attention_factor);
      }
    }
  });
}

void rope(Stream&, const Rope& args) {
  const std::int64_t T = args.x_THC.dim(0), H = args.x_THC.dim(1), C = args.x_THC.dim(2);
  const float *cos = args.cos_TN.as<float>(), *sin = args.sin_TN.as<float>();
  float* x = args.x_THC.as<float>();
  const float sign = args.inverse ? -1.0f : 1.0f;
  parallel_for(pieces_of(T, kTokens), [&](std::int64_t piece) {
    const std::int64_t end = std::min(T, (piece + 1) * kTokens);
    for (std::int64_t t = piece * kTokens; t < end; ++t) {
      for (std::int64_t h = 0; h < H; ++h) {
        float* head = x + (t * H + h) * C;
        rotate(head, cos + t * (C / 2), sin + t * (C / 2), sign, C / 2, head);
      }
    }
  });
}

void append_kv(Stream&, const AppendKv& args) {
  const std::int64_t T = args.k_TKC.dim(0), K = args.k_TKC.dim(1), C = args.k_TKC.dim(2);
  LS_CHECK(C <= kMaxHeadSize, "heads of {}", C);
  const float *k = args.k_TKC.as<float>(), *v = args.v_TKC.as<float>();
  const float *cos = args.cos_TN.as<float>(), *sin = args.sin_TN.as<float>();
  parallel_for(pieces_of(T, kTokens), [&](std::int64_t piece) {
    const std::int64_t end = std::min(T, (piece + 1) * kTokens);
    float head[kMaxHeadSize];
    for (std::int64_t t = piece * kTokens; t < end; ++t) {
      const View keys = row_in_page(args.pages, args.begin + t, 0);
      for (std::int64_t h = 0; h < K; ++h) {
        rotate(k + (t * K + h) * C, cos + t * (C / 2), sin + t * (C / 2), 1.0f, C / 2, head);
        narrow(head, C, keys, h * C);
      }
      narrow(v + t * K * C, K * C, row_in_page(args.pages, args.begin + t, 1), 0);
    }
  });
}

void take_kv_gradient(Stream&, const TakeKvGradient& args) {
  const std::int64_t T = args.dk_TKC.dim(0), K = args.dk_TKC.dim(1), C = args.dk_TKC.dim(2);
  float *dk = args.dk_TKC.as<float>(), *dv = args.dv_TKC.as<float>();
  const float *cos = args.cos_TN.as<float>(), *sin = args.sin_TN.as<float>();
  parallel_for(pieces_of(T, kTokens), [&](std::int64_t piece) {
    const std::int64_t end = std::min(T, (piece + 1) * kTokens);
    for (std::int64_t t = piece * kTokens; t < end; ++t) {
      float* row = dk + t * K * C;
      widen(row_in_page(args.pages, args.begin + t, 0), 0, K * C, row);
      for (std::int64_t h = 0; h < K; ++h) {
        rotate(row + h * C, cos + t * (C / 2), sin + t * (C / 2), -1.0f, C / 2, row + h * C);
      }
      widen(row_in_page(args.pages, args.begin + t, 1), 0, K * C, dv + t * K * C);
    }
  });
}

}  // namespace longstride::ops::cpu
