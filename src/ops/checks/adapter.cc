#include "ops/adapter.h"

#include "base/error.h"

namespace longstride::ops {
namespace {

// [x | u]: T rows of I + P columns, P that of A.
void check_columns(const ConstView& xu_TW, const ConstView& a_PI) {
  LS_CHECK(xu_TW.shape().rank() == 2 && a_PI.shape().rank() == 2 &&
               xu_TW.dim(1) == a_PI.dim(0) + a_PI.dim(1) && a_PI.dtype() == xu_TW.dtype(),
           "[x | u] {} {}, A {} {}", xu_TW.shape().to_string(), name_of(xu_TW.dtype()),
           a_PI.shape().to_string(), name_of(a_PI.dtype()));
}

void check_input(const ConstView& x_TI, const ConstView& xu_TW, const ConstView& a_PI) {
  LS_CHECK(!x_TI.present() || (x_TI.shape() == Shape({xu_TW.dim(0), a_PI.dim(1)}) &&
                               x_TI.dtype() == xu_TW.dtype()),
           "x {} for [x | u] {}, A {}", x_TI.shape().to_string(), xu_TW.shape().to_string(),
           a_PI.shape().to_string());
}

void check_dropout(const Dropout& dropout) {
  LS_CHECK(dropout.rate >= 0 && dropout.rate <= 0.999, "dropout of {}", dropout.rate);
}

}  // namespace

void check(const Stream&, const DropoutForward& args) {
  const Shape &x = args.x_TW.shape(), &y = args.y_TI.shape();
  LS_CHECK(x.rank() == 2 && y.rank() == 2 && x[0] == y[0] && x[1] >= y[1] &&
               args.x_TW.dtype() == args.y_TI.dtype(),
           "x {} y {}", x.to_string(), y.to_string());
  check_dropout(args.dropout);
}

void check(const Stream&, const AdapterForward& args) {
  check_columns(args.xu_TW, args.a_PI);
  check_input(args.x_TI, args.xu_TW, args.a_PI);
  check_input(args.dropped_TI, args.xu_TW, args.a_PI);
}

void check(const Stream&, const AdapterBackward& args) {
  check_columns(args.xu_TW, args.a_PI);
  check_input(args.dropped_TI, args.xu_TW, args.a_PI);
  check_dropout(args.dropout);
  LS_CHECK(args.d_TW.shape() == args.xu_TW.shape() && args.d_TW.dtype() == args.xu_TW.dtype(),
           "d {} of [x | u] {}", args.d_TW.shape().to_string(), args.xu_TW.shape().to_string());
  LS_CHECK(args.dx_TI.shape() == Shape({args.d_TW.dim(0), args.a_PI.dim(1)}) &&
               args.dx_TI.dtype() == args.d_TW.dtype(),
           "dx {} of [x | u] {}", args.dx_TI.shape().to_string(), args.d_TW.shape().to_string());
  LS_CHECK(!args.da_RI.present() ||
               (args.da_RI.shape().rank() == 2 && args.da_RI.dim(0) <= args.a_PI.dim(0) &&
                args.da_RI.dim(1) == args.a_PI.dim(1)),
           "dA {} of A {}", args.da_RI.shape().to_string(), args.a_PI.shape().to_string());
}

void check(const Stream&, const AdapterGradient& args) {
  const Shape &dy = args.dy_TO.shape(), &xu = args.xu_TW.shape(), &db = args.db_OR.shape();
  LS_CHECK(dy.rank() == 2 && xu.rank() == 2 && db.rank() == 2 && dy[0] == xu[0] && dy[1] == db[0] &&
               args.first >= 0 && args.first + db[1] <= xu[1] &&
               args.dy_TO.dtype() == args.xu_TW.dtype(),
           "dy {} [x | u] {} from column {} on, dB {}", dy.to_string(), xu.to_string(), args.first,
           db.to_string());
}

void check(const Stream&, const PlaceColumns& args) {
  const Shape &from = args.from_RC.shape(), &to = args.to_RW.shape();
  LS_CHECK(from.rank() == 2 && to.rank() == 2 && from[0] == to[0] && args.first >= 0 &&
               args.first + from[1] <= to[1] && is_weight_type(args.from_RC.dtype()) &&
               is_weight_type(args.to_RW.dtype()),
           "{} into {} from column {} on", from.to_string(), to.to_string(), args.first);
}

}  // namespace longstride::ops
