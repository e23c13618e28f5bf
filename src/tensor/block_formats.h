// Block formats: how a quantized matrix [O, I] lies in memory. A tensor of such a type is one
// contiguous record whose parts follow from type and shape alone; each part begins at a multiple of
// 16 bytes, and so does whatever follows the record if the record does. Elements are counted row by
// row, n = O*I. All of it, tables and arithmetic, is as in bitsandbytes.
//
//   kNf4      codes         ceil(n/2) bytes: element 2i in the high half of byte i
//             scale codes   one byte per block of 64 elements, an index into the dynamic map
//                           (tensor/dynamic_code.h)
//             nested scales one F32 per block of 256 scale codes
//             offset        one F32
//             element = table[code] * (map[scale code] * nested scale + offset)
//   kNf4Wide  codes, then scales: one F32 per block of 64
//             element = table[code] * scale
//   kInt8Rows codes         n bytes, -127 to 127
//             scales        one F32 per row: its largest magnitude
//             element = (code * scale) / 127, as a product with the rounded reciprocal
//
// Every operation rounds to F32; the element is then rounded to its type.
#pragma once

#include <array>
#include <cstdint>

#include "tensor/view.h"

namespace longstride {

inline constexpr std::int64_t kNf4Block = 64;              // elements per scale
inline constexpr std::int64_t kNestedBlock = 256;          // scales per nested scale
inline constexpr float kInt8Step = 7.874015718698502e-3f;  // 1 / 127

// Offsets and sizes in bytes. A part that the format lacks has no bytes.
struct BlockRecord {
  struct Part {
    std::int64_t offset = 0, bytes = 0;
  };
  Part codes;
  Part scales;  // kNf4: bytes; kNf4Wide, kInt8Rows: F32
  Part nested;  // kNf4
  Part offset;  // kNf4
  std::int64_t bytes = 0;
};

BlockRecord block_record(DType format, const Shape& shape);

// The 16 values of NF4.
inline constexpr std::array<float, 16> kNf4Table = {
    -1.0f,
    -0.6961928009986877f,
    -0.5250730514526367f,
    -0.39491748809814453f,
    -0.28444138169288635f,
    -0.18477343022823334f,
    -0.09105003625154495f,
    0.0f,
    0.07958029955625534f,
    0.16093020141124725f,
    0.24611230194568634f,
    0.33791524171829224f,
    0.44070982933044434f,
    0.5626170039176941f,
    0.7229568362236023f,
    1.0f,
};

}  // namespace longstride
