#include "tests/ops/coded_attention_case.h"

namespace longstride::ops {
namespace {

TEST(CodedAttentionOnCpu, GivesTheBitsOfWideCopies) {
  const auto device = make_cpu_device();
  for (const auto& [kv, gradients] :
       {std::pair{DType::kI8, DType::kI8}, std::pair{DType::kF8E4M3, DType::kF8E4M3},
        std::pair{DType::kI8, DType::kF32}, std::pair{DType::kF32, DType::kI8}})
    for (const bool equal : {true, false})
      expect_bits_of_wide_copies(*device, {.query_pages = 3,
                                           .H = 4,
                                           .K = 2,
                                           .C = 8,
                                           .P = 16,
                                           .earlier = 11,
                                           .selected = 4,
                                           .compute = DType::kF32,
                                           .kv_code = kv,
                                           .gradient_code = gradients,
                                           .equal_lists = equal,
                                           .hot = is_page_code(gradients) && equal ? 2 : 0});
}

}  // namespace
}  // namespace longstride::ops
