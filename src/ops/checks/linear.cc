#include "ops/linear.h"

#include "base/error.h"

namespace longstride::ops {
namespace {

void check_compute(DType t) {
  LS_CHECK(t == DType::kF32 || t == DType::kBF16, "activations of {}", name_of(t));
}

void check_weight(const ConstView& w_OI) {
  LS_CHECK(is_weight_type(w_OI.dtype()), "weight is {}", name_of(w_OI.dtype()));
}

}  // namespace

// Scratch is checked where it is used: how much a call needs depends on its outputs.
void check(const Stream&, const LinearForward& args) {
  const Shape &x = args.x_RI.shape(), &w = args.w_OI.shape(), &y = args.y_RO.shape();
  const DType compute = args.x_RI.dtype();
  check_compute(compute);
  LS_CHECK(x.rank() == 2 && w.rank() == 2 && y == Shape({x[0], w[0]}) && x[1] == w[1] &&
               args.y_RO.dtype() == compute,
           "x {} w {} y {} {}", x.to_string(), w.to_string(), y.to_string(),
           name_of(args.y_RO.dtype()));
  check_weight(args.w_OI);
  LS_CHECK(!args.b_O.present() || args.b_O.shape() == Shape({w[0]}), "bias {} of weight {}",
           args.b_O.shape().to_string(), w.to_string());
  LS_CHECK(!args.add_RO.present() || (args.add_RO.shape() == y && args.add_RO.dtype() == compute),
           "add {} y {}", args.add_RO.shape().to_string(), y.to_string());
}

void check(const Stream&, const LinearBackward& args) {
  const Shape& dy = args.dy_RO.shape();
  LS_CHECK(dy.rank() == 2, "dy {}", dy.to_string());
  const std::int64_t R = dy[0], O = dy[1];
  const DType compute = args.dy_RO.dtype();
  check_compute(compute);
  if (args.dx_RI.present()) {
    const Shape &w = args.w_OI.shape(), &dx = args.dx_RI.shape();
    LS_CHECK(w.rank() == 2 && w[0] == O && dx == Shape({R, w[1]}) && args.dx_RI.dtype() == compute,
             "dy {} w {} dx {}", dy.to_string(), w.to_string(), dx.to_string());
    check_weight(args.w_OI);
  }
  if (args.dw_OI.present()) {
    const Shape &x = args.x_RI.shape(), &dw = args.dw_OI.shape();
    LS_CHECK(x.rank() == 2 && x[0] == R && dw == Shape({O, x[1]}) && args.x_RI.dtype() == compute,
             "dy {} x {} dw {}", dy.to_string(), x.to_string(), dw.to_string());
  }
  LS_CHECK(!args.db_O.present() || args.db_O.shape() == Shape({O}), "dy {} db {}", dy.to_string(),
           args.db_O.shape().to_string());
}

}  // namespace longstride::ops
