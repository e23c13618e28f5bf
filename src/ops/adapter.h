// Low-rank adapters (LoRA), folded into the products of the weights that they are added to:
//   y = x W^T + s (x A^T) B^T = [x | u] [W | s B]^T,   u = x A^T.
// Projections that share an input share u: their A are stacked, and the weight of each has zeros in
// the columns of the others.
//
//   T tokens   I inputs   O outputs   R rank (or the sum of those that are stacked)
//   P adapter columns: R and zeros, to a multiple of kAdapterColumns   W = I + P
//
// Activations have one type, F32 or BF16; sums are F32.
#pragma once

#include "ops/dispatch.h"
#include "tensor/view.h"

namespace longstride::ops {

// Rows of [x | u] stay aligned to 16 bytes.
inline constexpr std::int64_t kAdapterColumns = 8;

// Which elements of an input are dropped, as a function of the key, the token and the column alone.
// The probability is rounded to a multiple of 2^-16; what stays is scaled to keep the mean.
struct Dropout {
  std::uint64_t key = 0;
  std::int64_t first_token = 0;  // of the first row, in its sequence
  double rate = 0;
};

// y = x with elements dropped.
struct DropoutForward {
  ConstView x_TW;  // its first I columns are read
  View y_TI;       // =
  Dropout dropout;
};
LS_OP(dropout_forward, DropoutForward)

struct AdapterForward {
  ConstView x_TI;        // absent: it is in the first columns of xu already
  ConstView dropped_TI;  // what u is made of; absent: x
  ConstView a_PI;        // in the type of x
  View xu_TW;            // = [x | u]
};
LS_OP(adapter_forward, AdapterForward)

// The gradient of [x | u] is d = dy [W | s B] (linear_backward). From it, those of A and x.
struct AdapterBackward {
  ConstView d_TW;
  ConstView xu_TW;       // of the forward pass
  ConstView dropped_TI;  // likewise; absent: there was no dropout
  ConstView a_PI;
  View da_RI;       // +=, F32; R <= P; absent: not computed
  View dx_TI;       // = the first columns of d, and du A with the dropped elements left out
  Dropout dropout;  // of the forward pass
};
LS_OP(adapter_backward, AdapterBackward)

// dB += s dy^T u, for the columns of u that begin with `first`.
struct AdapterGradient {
  ConstView dy_TO;
  ConstView xu_TW;
  std::int64_t first = 0;  // a column of xu
  View db_OR;              // +=, F32
  double scale = 1;
};
LS_OP(adapter_gradient, AdapterGradient)

// Columns [first, first + C) of `to` = scale * from.
struct PlaceColumns {
  ConstView from_RC;  // F32, BF16 or F16
  View to_RW;         // any of those; the other columns stay
  std::int64_t first = 0;
  double scale = 1;
};
LS_OP(place_columns, PlaceColumns)

}  // namespace longstride::ops
