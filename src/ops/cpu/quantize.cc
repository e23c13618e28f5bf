#include "ops/quantize.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/thread_pool.h"
#include "ops/cpu/widen.h"
#include "ops/quantize_bounds.h"

namespace longstride::ops::cpu {
namespace {

float largest_magnitude(const float* x, std::int64_t n) {
  float largest = 0.0f;
  for (std::int64_t i = 0; i < n; ++i) largest = std::max(largest, std::fabs(x[i]));
  return largest;
}

// Divides a block by its largest magnitude; returns the scale to store. A block that is cut short
// by the end is divided in earnest, the others are multiplied by the reciprocal.
float normalize(float* x, std::int64_t n, bool whole) {
  const float scale = largest_magnitude(x, n), divisor = std::max(scale, kLeastScale);
  const float reciprocal = 1.0f / divisor;
  for (std::int64_t i = 0; i < n; ++i) x[i] = whole ? x[i] * reciprocal : x[i] / divisor;
  return whole ? scale : divisor;
}

unsigned nf4_code(float x) {
  unsigned code = 0;
  for (const float bound : kNf4Bounds) code += bound < x ? 1u : 0u;
  return code;
}

unsigned dynamic_code(float x) {
  return static_cast<unsigned>(std::ranges::lower_bound(kDynamicBounds, x) -
                               kDynamicBounds.begin());
}

// The sum of 4 * 8 columns that PyTorch adds at once, each in four levels.
using Columns = std::array<float, 32>;
Columns column_sums(const float* x, std::int64_t rows) {
  constexpr int kLevels = 4;
  const int log =
      rows <= 1 ? 0 : static_cast<int>(std::bit_width(static_cast<std::uint64_t>(rows - 1)));
  const int power = std::max(4, log / kLevels);
  const std::int64_t step = std::int64_t{1} << power, mask = step - 1;
  std::array<Columns, kLevels> sums{};
  std::int64_t row = 0;
  const auto add_row = [&] {
    for (std::size_t c = 0; c < 32; ++c) sums[0][c] += x[row * 32 + static_cast<std::int64_t>(c)];
    ++row;
  };
  while (row + step <= rows) {
    for (std::int64_t i = 0; i < step; ++i) add_row();
    for (std::size_t level = 1; level < kLevels; ++level) {
      for (std::size_t c = 0; c < 32; ++c) sums[level][c] += sums[level - 1][c];
      sums[level - 1].fill(0.0f);
      if ((row & (mask << (static_cast<int>(level) * power))) != 0) break;
    }
  }
  while (row < rows) add_row();
  for (std::size_t level = 1; level < kLevels; ++level)
    for (std::size_t c = 0; c < 32; ++c) sums[0][c] += sums[level][c];
  return sums[0];
}

// In the order of PyTorch's reduction on one thread: vectors of 8, four at a time.
float mean(const float* x, std::int64_t n) {
  const std::int64_t rows = n / 32;
  Columns sums = column_sums(x, rows);
  for (std::int64_t i = rows * 32; i + 8 <= n; i += 8)
    for (std::int64_t c = 0; c < 8; ++c) sums[static_cast<std::size_t>(c)] += x[i + c];
  for (std::size_t c = 8; c < 32; ++c) sums[c % 8] += sums[c];
  float sum = 0.0f;
  for (std::int64_t i = n / 8 * 8; i < n; ++i) sum += x[i];
  for (std::size_t c = 0; c < 8; ++c) sum += sums[c];
  return sum / static_cast<float>(n);
}

// Codes of every block; scales in F32.
void quantize_blocks(const ConstView& w, std::uint8_t* codes, float* scales) {
  const std::int64_t n = w.elements();
  parallel_for(pieces_of(n), [&](std::int64_t piece) {
    const std::int64_t end = std::min(n, (piece + 1) * kPiece);
    for (std::int64_t i = piece * kPiece; i < end; i += kNf4Block) {
      const std::int64_t count = std::min(kNf4Block, end - i);
      float x[kNf4Block] = {};  // an odd end is filled with a zero
      widen(w, i, count, x);
      scales[i / kNf4Block] = normalize(x, count, count == kNf4Block);
      for (std::int64_t k = 0; k < count; k += 2)
        codes[(i + k) / 2] = static_cast<std::uint8_t>(nf4_code(x[k]) << 4 | nf4_code(x[k + 1]));
    }
  });
}

// The scales of blocks in 8 bits.
void quantize_scales(const float* scales, std::int64_t n, std::byte* record,
                     const BlockRecord& parts) {
  auto* const codes = reinterpret_cast<std::uint8_t*>(record + parts.scales.offset);
  auto* const nested = reinterpret_cast<float*>(record + parts.nested.offset);
  const float offset = mean(scales, n);
  std::memcpy(record + parts.offset.offset, &offset, sizeof offset);
  parallel_for(pieces_of(n, kNestedBlock), [&](std::int64_t block) {
    const std::int64_t first = block * kNestedBlock, count = std::min(kNestedBlock, n - first);
    float x[kNestedBlock];
    for (std::int64_t i = 0; i < count; ++i) x[i] = scales[first + i] - offset;
    nested[block] = normalize(x, count, count == kNestedBlock);
    for (std::int64_t i = 0; i < count; ++i)
      codes[first + i] = static_cast<std::uint8_t>(dynamic_code(x[i]));
  });
}

void quantize_rows(const ConstView& w_OI, std::int8_t* codes, float* scales) {
  const std::int64_t columns = w_OI.dim(1);
  parallel_for(w_OI.dim(0), [&](std::int64_t row) {
    constexpr std::int64_t kTile = 1024;
    float x[kTile];
    const auto tiles = [&](const auto& f) {
      for (std::int64_t i = 0; i < columns; i += kTile) {
        const std::int64_t count = std::min(kTile, columns - i);
        widen(w_OI, row * columns + i, count, x);
        f(row * columns + i, count);
      }
    };
    float scale = 0.0f;
    tiles([&](std::int64_t, std::int64_t count) {
      scale = std::max(scale, largest_magnitude(x, count));
    });
    scales[row] = scale;
    const float factor = 1.0f / scale * 127.0f;  // in this order
    tiles([&](std::int64_t first, std::int64_t count) {
      for (std::int64_t i = 0; i < count; ++i)
        codes[first + i] = std::isfinite(factor)
                               ? static_cast<std::int8_t>(std::nearbyint(x[i] * factor))
                               : std::int8_t{0};  // a row of zeros
    });
  });
}

// The scale of block `block`. The product is rounded before the sum: no fused operation.
float nf4_scale(const ConstView& q, const BlockRecord& parts, std::int64_t block) {
  const auto* const record = static_cast<const std::byte*>(q.data());
  if (q.dtype() == DType::kNf4Wide)
    return reinterpret_cast<const float*>(record + parts.scales.offset)[block];
  const auto code = std::to_integer<std::size_t>(record[parts.scales.offset + block]);
  const float nested =
      reinterpret_cast<const float*>(record + parts.nested.offset)[block / kNestedBlock];
  const volatile float product = kDynamicMap[code] * nested;
  return product + *reinterpret_cast<const float*>(record + parts.offset.offset);
}

// Elements [first, first + n) of an NF4 matrix.
void widen_nf4(const ConstView& q, const BlockRecord& parts, std::int64_t first, std::int64_t n,
               float* y) {
  const auto* const codes = static_cast<const std::uint8_t*>(q.data());
  for (std::int64_t i = 0; i < n;) {
    const std::int64_t block = (first + i) / kNf4Block,
                       end = std::min(n, (block + 1) * kNf4Block - first);
    const float scale = nf4_scale(q, parts, block);
    for (; i < end; ++i) {
      const std::int64_t at = first + i;
      const unsigned pair = codes[at / 2];
      y[i] = kNf4Table[at % 2 == 0 ? pair >> 4 : pair & 15u] * scale;
    }
  }
}

void widen_int8(const ConstView& q, const BlockRecord& parts, std::int64_t row, std::int64_t first,
                std::int64_t n, float* y) {
  const auto* const record = static_cast<const std::byte*>(q.data());
  const auto* const codes = reinterpret_cast<const std::int8_t*>(record) + first;
  const float scale = reinterpret_cast<const float*>(record + parts.scales.offset)[row];
  for (std::int64_t i = 0; i < n; ++i) y[i] = static_cast<float>(codes[i]) * scale * kInt8Step;
}

}  // namespace

void quantize_weight(Stream&, const QuantizeWeight& args) {
  const BlockRecord parts = block_record(args.q_OI.dtype(), args.q_OI.shape());
  auto* const record = static_cast<std::byte*>(args.q_OI.data());
  auto* const scales = reinterpret_cast<float*>(record + parts.scales.offset);
  if (args.q_OI.dtype() == DType::kInt8Rows)
    return quantize_rows(args.w_OI, reinterpret_cast<std::int8_t*>(record), scales);
  const bool nested = args.q_OI.dtype() == DType::kNf4;
  float* const wide = nested ? args.scratch.as<float>() : scales;
  quantize_blocks(args.w_OI, reinterpret_cast<std::uint8_t*>(record), wide);
  if (nested) quantize_scales(wide, parts.scales.bytes, record, parts);
}

void widen_weight(Stream&, const WidenWeight& args) {
  const BlockRecord parts = block_record(args.q_OI.dtype(), args.q_OI.shape());
  const std::int64_t I = args.q_OI.dim(1), W = args.y_OW.dim(1), R = W - I;
  parallel_for(args.q_OI.dim(0), [&](std::int64_t row) {
    constexpr std::int64_t kTile = 1024;
    float tile[kTile];
    for (std::int64_t i = 0; i < I; i += kTile) {
      const std::int64_t first = row * I + i, n = std::min(kTile, I - i);
      if (args.q_OI.dtype() == DType::kInt8Rows)
        widen_int8(args.q_OI, parts, row, first, n, tile);
      else
        widen_nf4(args.q_OI, parts, first, n, tile);
      narrow(tile, n, args.y_OW, row * W + i);
    }
    if (R == 0) return;
    const std::int64_t size = size_of(args.y_OW.dtype());
    std::memcpy(static_cast<std::byte*>(args.y_OW.data()) + (row * W + I) * size,
                static_cast<const std::byte*>(args.tail_OR.data()) + row * R * size,
                static_cast<std::size_t>(R * size));
  });
}

}  // namespace longstride::ops::cpu
