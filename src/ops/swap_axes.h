// Another order of rows: those of a matrix of rows, column by column.
//   A, B   its sizes   C elements of a row
#pragma once

#include "ops/dispatch.h"
#include "tensor/view.h"

namespace longstride::ops {

struct SwapAxes {
  ConstView x_ABC;  // any type but block formats
  View y_BAC;       // =, y[b][a] = x[a][b], bit by bit
};
LS_OP(swap_axes, SwapAxes)

}  // namespace longstride::ops
