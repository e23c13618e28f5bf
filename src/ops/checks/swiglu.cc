#include "ops/swiglu.h"

#include "base/error.h"

namespace longstride::ops {

void check(const Stream&, const SwigluForward& args) {
  const Shape& shape = args.gate_TF.shape();
  const Shape& y = args.y_TW.shape();
  const bool wider = y.rank() == 2 && shape.rank() == 2 && y[0] == shape[0] && y[1] > shape[1] &&
                     args.y_TW.data() != args.gate_TF.data() &&
                     args.y_TW.data() != args.up_TF.data();
  LS_CHECK(args.up_TF.shape() == shape && (y == shape || wider), "gate {} up {} y {}",
           shape.to_string(), args.up_TF.shape().to_string(), y.to_string());
}

void check(const Stream&, const SwigluBackward& args) {
  const Shape& shape = args.gate_TF.shape();
  LS_CHECK(args.up_TF.shape() == shape && args.dy_TF.shape() == shape &&
               args.dgate_TF.shape() == shape && args.dup_TF.shape() == shape,
           "gate {} up {} dy {} dgate {} dup {}", shape.to_string(), args.up_TF.shape().to_string(),
           args.dy_TF.shape().to_string(), args.dgate_TF.shape().to_string(),
           args.dup_TF.shape().to_string());
  LS_CHECK(!args.y_TF.present() || args.y_TF.shape() == shape, "gate {} y {}", shape.to_string(),
           args.y_TF.shape().to_string());
}

}  // namespace longstride::ops
