// Quantized weights, in the block formats of tensor/block_formats.h: O outputs, I inputs.
#pragma once

#include "ops/dispatch.h"
#include "tensor/view.h"

namespace longstride::ops {

// Codes and scales of a matrix, to the bit as bitsandbytes computes them: NF4 as its quantize_4bit
// (blocks of 64; for kNf4 the scales less their mean, in blocks of 256), int8 as its
// int8_vectorwise_quant. Values must be finite. Two things are not the same everywhere in
// bitsandbytes, and are here as follows. The mean of the scales is summed in the order of PyTorch's
// CPU reduction on one thread. A scale gets the nearest value of the dynamic map, the lower one of
// two, as in its reference implementation (its CPU library rounds to 65536 steps first).
//
// Bytes between the parts of the record are not written.
struct QuantizeWeight {
  ConstView w_OI;  // F32, BF16 or F16
  View q_OI;       // =, a block format
  View scratch;    // F32, at least quantize_scratch_elements; may be absent when that is 0
};
LS_OP(quantize_weight, QuantizeWeight)

std::int64_t quantize_scratch_elements(DType format, const Shape& shape);

// Values of a quantized matrix, and beside them the columns of another: y = [q|tail]. Each value is
// computed in F32 as the format says and rounded once, to y's type.
struct WidenWeight {
  ConstView q_OI;     // a block format
  ConstView tail_OR;  // of y's type; absent: R = 0
  View y_OW;          // =, F32 or BF16; W = I + R
};
LS_OP(widen_weight, WidenWeight)

}  // namespace longstride::ops
