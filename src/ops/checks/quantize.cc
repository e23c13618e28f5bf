#include "ops/quantize.h"

#include "base/error.h"
#include "tensor/block_formats.h"

namespace longstride::ops {

std::int64_t quantize_scratch_elements(DType format, const Shape& shape) {
  return format == DType::kNf4 ? block_record(format, shape).scales.bytes : 0;
}

void check(const Stream&, const QuantizeWeight& args) {
  const Shape& shape = args.q_OI.shape();
  LS_CHECK(shape.rank() == 2 && args.w_OI.shape() == shape && is_weight_type(args.w_OI.dtype()) &&
               is_block_format(args.q_OI.dtype()) && shape.elements() > 0,
           "w {} {} q {} {}", name_of(args.w_OI.dtype()), args.w_OI.shape().to_string(),
           name_of(args.q_OI.dtype()), shape.to_string());
  const std::int64_t needed = quantize_scratch_elements(args.q_OI.dtype(), shape);
  LS_CHECK(needed == 0 || (args.scratch.present() && args.scratch.dtype() == DType::kF32 &&
                           args.scratch.elements() >= needed),
           "scratch {}, needed {}", args.scratch.shape().to_string(), needed);
}

void check(const Stream&, const WidenWeight& args) {
  const Shape &q = args.q_OI.shape(), &y = args.y_OW.shape(), &tail = args.tail_OR.shape();
  const DType type = args.y_OW.dtype();
  LS_CHECK(q.rank() == 2 && is_block_format(args.q_OI.dtype()) && q.elements() > 0 &&
               (type == DType::kF32 || type == DType::kBF16),
           "q {} {} y {}", name_of(args.q_OI.dtype()), q.to_string(), name_of(type));
  LS_CHECK(!args.tail_OR.present() ||
               (tail.rank() == 2 && tail[0] == q[0] && args.tail_OR.dtype() == type),
           "q {} tail {} {}", q.to_string(), name_of(args.tail_OR.dtype()), tail.to_string());
  const std::int64_t more = args.tail_OR.present() ? tail[1] : 0;
  LS_CHECK(y == Shape({q[0], q[1] + more}), "q {} tail {} y {}", q.to_string(), tail.to_string(),
           y.to_string());
}

}  // namespace longstride::ops
