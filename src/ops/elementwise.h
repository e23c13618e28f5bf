// Small elementwise operations.
#pragma once

#include "ops/dispatch.h"
#include "tensor/view.h"

namespace longstride::ops {

struct Add {
  ConstView a, b;
  View y;  // = a + b; may be a or b
};
LS_OP(add, Add)

struct Convert {
  ConstView x;  // F32, BF16 or F16
  View y;       // =, any of those; round to nearest even
};
LS_OP(convert, Convert)

struct Zero {
  View y;  // = 0
};
LS_OP(zero, Zero)

}  // namespace longstride::ops
