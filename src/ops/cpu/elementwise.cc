#include "ops/elementwise.h"

#include <algorithm>
#include <cstring>

#include "base/thread_pool.h"
#include "ops/cpu/simd_math.h"
#include "ops/cpu/widen.h"

namespace longstride::ops::cpu {
namespace {

LS_SIMD_CLONES void add_piece(const float* a, const float* b, std::int64_t n, float* y) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) y[i] = a[i] + b[i];
}

}  // namespace

void add(Stream&, const Add& args) {
  const Shape& shape = args.y.shape();
  const float *a = args.a.as<float>(), *b = args.b.as<float>();
  float* y = args.y.as<float>();
  const std::int64_t elements = shape.elements();
  parallel_for(pieces_of(elements), [&](std::int64_t piece) {
    const std::int64_t i = piece * kPiece;
    add_piece(a + i, b + i, std::min(kPiece, elements - i), y + i);
  });
}

void convert(Stream&, const Convert& args) {
  constexpr std::int64_t kTile = 1024;
  const std::int64_t elements = args.x.elements();
  parallel_for(pieces_of(elements), [&](std::int64_t piece) {
    const std::int64_t end = std::min(elements, (piece + 1) * kPiece);
    float tile[kTile];
    for (std::int64_t i = piece * kPiece; i < end; i += kTile) {
      const std::int64_t n = std::min(kTile, end - i);
      widen(args.x, i, n, tile);
      narrow(tile, n, args.y, i);
    }
  });
}

void zero(Stream&, const Zero& args) {
  constexpr std::int64_t kBytes = std::int64_t{1} << 20;
  const std::int64_t bytes = args.y.bytes();
  auto* y = static_cast<std::byte*>(args.y.data());
  parallel_for(pieces_of(bytes, kBytes), [&](std::int64_t piece) {
    const std::int64_t begin = piece * kBytes;
    std::memset(y + begin, 0, static_cast<std::size_t>(std::min(kBytes, bytes - begin)));
  });
}

}  // namespace longstride::ops::cpu
