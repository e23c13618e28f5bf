#include "ops/rms_norm.h"

#include "base/error.h"

namespace longstride::ops {
namespace {

void check_shapes(const Shape& x, const ConstView& w) {
  LS_CHECK(x.rank() == 2 && w.shape() == Shape({x[1]}) && is_weight_type(w.dtype()), "x {} w {} {}",
           x.to_string(), w.shape().to_string(), name_of(w.dtype()));
}

}  // namespace

void check(const Stream&, const RmsNormForward& args) {
  check_shapes(args.x_RN.shape(), args.w_N);
  const Shape &x = args.x_RN.shape(), &y = args.y_RW.shape();
  const bool wider =
      y.rank() == 2 && y[0] == x[0] && y[1] > x[1] && args.y_RW.data() != args.x_RN.data();
  LS_CHECK(y == x || wider, "x {} y {}", x.to_string(), y.to_string());
}

void check(const Stream& stream, const RmsNormBackward& args) {
  const Shape& x = args.x_RN.shape();
  check_shapes(x, args.w_N);
  LS_CHECK(args.dy_RN.shape() == x && args.dx_RN.shape() == x &&
               (!args.dw_N.present() || args.dw_N.shape() == args.w_N.shape()),
           "dy {} dx {} dw {} x {}", args.dy_RN.shape().to_string(), args.dx_RN.shape().to_string(),
           args.dw_N.shape().to_string(), x.to_string());
  LS_CHECK(args.scratch.elements() >= rms_norm_backward_scratch_elements(stream, {x[0], x[1]}),
           "scratch {}", args.scratch.shape().to_string());
}

}  // namespace longstride::ops
