#include "ops/optimizer.h"

#include "base/error.h"

namespace longstride::ops {

void check(const Stream&, const SumOfSquares& args) {
  LS_CHECK(args.sum_1.elements() == 1, "sum {}", args.sum_1.shape().to_string());
}

void check(const Stream&, const AdamW& args) {
  const Shape& shape = args.master.shape();
  LS_CHECK(args.g.shape() == shape && args.m.shape() == shape && args.v.shape() == shape,
           "g {} master {} m {} v {}", args.g.shape().to_string(), shape.to_string(),
           args.m.shape().to_string(), args.v.shape().to_string());
  LS_CHECK(!args.weight.present() || args.weight.shape() == shape, "weight {} master {}",
           args.weight.shape().to_string(), shape.to_string());
  LS_CHECK(args.step >= 1, "step {}", args.step);
}

}  // namespace longstride::ops
