#include "ops/elementwise.h"

#include "base/error.h"

namespace longstride::ops {

void check(const Stream&, const Add& args) {
  const Shape& shape = args.y.shape();
  LS_CHECK(args.a.shape() == shape && args.b.shape() == shape, "a {} b {} y {}",
           args.a.shape().to_string(), args.b.shape().to_string(), shape.to_string());
}

void check(const Stream&, const Convert& args) {
  LS_CHECK(args.x.shape() == args.y.shape() && is_weight_type(args.x.dtype()) &&
               is_weight_type(args.y.dtype()),
           "x {} {} y {} {}", name_of(args.x.dtype()), args.x.shape().to_string(),
           name_of(args.y.dtype()), args.y.shape().to_string());
}

void check(const Stream&, const Zero& args) { LS_CHECK(args.y.present(), "y is absent"); }

}  // namespace longstride::ops
