#include "ops/optimizer.h"

#include "base/error.h"
#include "tensor/dynamic_code.h"

namespace longstride::ops {

void check(const Stream&, const SumOfSquares& args) {
  LS_CHECK(args.sum_1.elements() == 1, "sum {}", args.sum_1.shape().to_string());
}

void check(const Stream&, const AdamW& args) {
  const Shape& shape = args.g.shape();
  LS_CHECK(args.m.shape() == shape && args.v.shape() == shape, "g {} m {} v {}", shape.to_string(),
           args.m.shape().to_string(), args.v.shape().to_string());
  LS_CHECK(!args.master.present() || args.master.shape() == shape, "g {} master {}",
           shape.to_string(), args.master.shape().to_string());
  LS_CHECK(args.weight.present() ? args.weight.shape() == shape : args.master.present(),
           "g {} weight {} master {}", shape.to_string(), args.weight.shape().to_string(),
           args.master.shape().to_string());
  LS_CHECK(args.step >= 1, "step {}", args.step);
  if (!args.master.present()) {
    LS_CHECK(args.weight.dtype() == DType::kBF16 || args.weight.dtype() == DType::kF16,
             "without a master the weight is {}", name_of(args.weight.dtype()));
    LS_CHECK(args.first_element >= 0 && args.first_element % 2 == 0, "first element {}",
             args.first_element);
  }
  if (!args.m_absmax.present() && !args.v_absmax.present()) return;
  const std::int64_t n = shape.elements(), blocks = (n + kCodeBlock - 1) / kCodeBlock;
  LS_CHECK(args.m_absmax.elements() == blocks && args.v_absmax.elements() == blocks,
           "{} elements, magnitudes of m {} v {}", n, args.m_absmax.shape().to_string(),
           args.v_absmax.shape().to_string());
  LS_CHECK(args.first_element % kCodeBlock == 0, "first element {}", args.first_element);
}

}  // namespace longstride::ops
