#include "model/weight_quantizer.h"

#include "base/error.h"
#include "ops/quantize.h"

namespace longstride {
namespace {

// At least this many bytes. The old ones go first, so that both never exist.
void grow(Device& device, std::unique_ptr<Memory>& memory, std::int64_t bytes) {
  if (memory != nullptr && memory->bytes() >= bytes) return;
  memory.reset();
  memory = device.allocate(bytes, "a weight that is being quantized");
  device.stream().synchronize();  // new memory is zeroed in stream order
}

}  // namespace

View WeightQuantizer::temporary(DType dtype, const Shape& shape) {
  grow(device_, values_, bytes_of(dtype, shape));
  current_ = View(values_->data(), dtype, shape);
  return current_;
}

void WeightQuantizer::quantize(const View& to) {
  LS_CHECK(current_.shape() == to.shape(), "{} into {}", current_.shape().to_string(),
           to.shape().to_string());
  const std::int64_t needed = ops::quantize_scratch_elements(to.dtype(), to.shape());
  View scratch;
  if (needed > 0) {
    grow(device_, scratch_, needed * size_of(DType::kF32));
    scratch = View(scratch_->data(), DType::kF32, {needed});
  }
  ops::quantize_weight(device_.stream(), {current_, to, scratch});
  device_.stream().synchronize();
}

}  // namespace longstride
