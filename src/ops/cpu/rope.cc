#include "ops/rope.h"

#include <algorithm>
#include <cmath>

#include "base/thread_pool.h"
#include "ops/cpu/simd_math.h"
#include "ops/cpu/widen.h"

namespace longstride::ops::cpu {
namespace {

constexpr std::int64_t kTokens = 16;         // tokens per piece of work
constexpr std::int64_t kMaxHeadSize = 1024;  // of a head that is rotated on the stack

// One head: pair (i, i + half) turns by the token's angle i; back where sign is -1. y may be x.
LS_SIMD_CLONES void rotate(const float* x, const float* cos, const float* sin, float sign,
                           std::int64_t half, float* y) {
#pragma omp simd
  for (std::int64_t i = 0; i < half; ++i) {
    const float a = x[i], b = x[i + half], c = cos[i], s = sign * sin[i];
    y[i] = a * c - b * s;
    y[i + half] = b * c + a * s;
  }
}

void check_tables(const ConstView& cos_TN, const ConstView& sin_TN, std::int64_t tokens,
                  std::int64_t head_size) {
  LS_CHECK(head_size % 2 == 0 && cos_TN.shape() == Shape({tokens, head_size / 2}) &&
               sin_TN.shape() == cos_TN.shape(),
           "cos {} sin {} for {} tokens of head size {}", cos_TN.shape().to_string(),
           sin_TN.shape().to_string(), tokens, head_size);
}

// Checks that tokens [begin, begin + T) of `x` fit the pages, and that those pages exist.
void check_pages(const PagesView& pages, const ConstView& x_TKC, const ConstView& other,
                 std::int64_t begin) {
  LS_CHECK(x_TKC.shape().rank() == 3 && other.shape() == x_TKC.shape() &&
               x_TKC.dim(1) == pages.kv_heads && x_TKC.dim(2) == pages.head_size &&
               pages.head_size <= kMaxHeadSize,
           "{} and {} for pages of {} heads of {}", x_TKC.shape().to_string(),
           other.shape().to_string(), pages.kv_heads, pages.head_size);
  const std::int64_t P = pages.page_tokens;
  LS_CHECK(is_weight_type(pages.dtype) && P > 0 &&
               pages.page_bytes >= 2 * P * pages.kv_heads * pages.head_size * size_of(pages.dtype),
           "pages of {} bytes hold no {} tokens of {}", pages.page_bytes, P, name_of(pages.dtype));
  LS_CHECK(begin >= 0, "begin {}", begin);
  for (std::int64_t page = begin / P; page * P < begin + x_TKC.dim(0); ++page) {
    LS_CHECK(pages.slots[page] >= 0, "page {} does not exist", page);
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
  LS_CHECK(args.positions_T.shape().rank() == 1 && args.frequencies_N.shape().rank() == 1,
           "positions {} frequencies {}", args.positions_T.shape().to_string(),
           args.frequencies_N.shape().to_string());
  const std::int64_t T = args.positions_T.dim(0), N = args.frequencies_N.dim(0);
  check_tables(args.cos_TN, args.sin_TN, T, 2 * N);
  const std::int64_t* positions = args.positions_T.as<std::int64_t>();
  const double* frequencies = args.frequencies_N.as<double>();
  float *cos = args.cos_TN.as<float>(), *sin = args.sin_TN.as<float>();
  parallel_for(pieces_of(T, kTokens), [&](std::int64_t piece) {
    const std::int64_t end = std::min(T, (piece + 1) * kTokens);
    for (std::int64_t t = piece * kTokens; t < end; ++t) {
      for (std::int64_t i = 0; i < N; ++i) {
        // The product is rounded, to 1e-7 radians at position 2^30; `rest` is what the rounding
        // took away.
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
  LS_CHECK(args.x_THC.shape().rank() == 3, "x {}", args.x_THC.shape().to_string());
  const std::int64_t T = args.x_THC.dim(0), H = args.x_THC.dim(1), C = args.x_THC.dim(2);
  check_tables(args.cos_TN, args.sin_TN, T, C);
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
  check_pages(args.pages, args.k_TKC, args.v_TKC, args.begin);
  const std::int64_t T = args.k_TKC.dim(0), K = args.k_TKC.dim(1), C = args.k_TKC.dim(2);
  check_tables(args.cos_TN, args.sin_TN, T, C);
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
  check_pages(args.pages, args.dk_TKC, args.dv_TKC, args.begin);
  const std::int64_t T = args.dk_TKC.dim(0), K = args.dk_TKC.dim(1), C = args.dk_TKC.dim(2);
  check_tables(args.cos_TN, args.sin_TN, T, C);
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
