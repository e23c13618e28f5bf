#include "tensor/block_formats.h"

#include "base/error.h"

namespace longstride {
namespace {

constexpr std::int64_t kPartAlignment = 16;

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace

BlockRecord block_record(DType format, const Shape& shape) {
  LS_CHECK(is_block_format(format) && shape.rank() == 2, "{} {}", name_of(format),
           shape.to_string());
  constexpr std::int64_t kFloat = size_of(DType::kF32);
  BlockRecord record;
  const auto append = [&](std::int64_t bytes) {
    const BlockRecord::Part part{record.bytes, bytes};
    record.bytes += ceil_div(bytes, kPartAlignment) * kPartAlignment;
    return part;
  };
  const std::int64_t n = shape.elements(), blocks = ceil_div(n, kNf4Block);
  if (format == DType::kInt8Rows) {
    record.codes = append(n);
    record.scales = append(shape[0] * kFloat);
    return record;
  }
  record.codes = append(ceil_div(n, 2));
  if (format == DType::kNf4Wide) {
    record.scales = append(blocks * kFloat);
    return record;
  }
  record.scales = append(blocks);
  record.nested = append(ceil_div(blocks, kNestedBlock) * kFloat);
  record.offset = append(kFloat);
  return record;
}

std::int64_t bytes_of(DType dtype, const Shape& shape) {
  return is_block_format(dtype) ? block_record(dtype, shape).bytes
                                : shape.elements() * size_of(dtype);
}

}  // namespace longstride
