#include "ops/swap_axes.h"

#include "base/error.h"

namespace longstride::ops {

void check(const Stream&, const SwapAxes& args) {
  const Shape &x = args.x_ABC.shape(), &y = args.y_BAC.shape();
  LS_CHECK(x.rank() == 3 && y == Shape({x[1], x[0], x[2]}) &&
               args.x_ABC.dtype() == args.y_BAC.dtype() && !is_block_format(args.x_ABC.dtype()),
           "x {} {} y {} {}", name_of(args.x_ABC.dtype()), x.to_string(),
           name_of(args.y_BAC.dtype()), y.to_string());
}

}  // namespace longstride::ops
