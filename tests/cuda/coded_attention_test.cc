// Sparse attention over pages in 8 bits: by cuDNN, which reads codes as it copies them, and by our
// kernels, over wide copies.
#include "tests/ops/coded_attention_case.h"

namespace longstride::ops {
namespace {

struct Size {
  std::int64_t query_pages, H, K, C, P, earlier, selected, hot = 0;
};

class CodedAttentionOnCuda : public testing::TestWithParam<Size> {};

TEST_P(CodedAttentionOnCuda, GivesTheBitsOfWideCopies) {
  const auto device = make_cuda_device();
  const Size& s = GetParam();
  for (const auto& [kv, gradients] :
       {std::pair{DType::kI8, DType::kI8}, std::pair{DType::kF8E4M3, DType::kF8E4M3},
        std::pair{DType::kI8, DType::kBF16}, std::pair{DType::kBF16, DType::kI8}})
    for (const bool equal : {true, false}) {
      SCOPED_TRACE(testing::Message()
                   << name_of(kv) << " " << name_of(gradients) << (equal ? "" : " unequal lists"));
      expect_bits_of_wide_copies(*device, {.query_pages = s.query_pages,
                                           .H = s.H,
                                           .K = s.K,
                                           .C = s.C,
                                           .P = s.P,
                                           .earlier = s.earlier,
                                           .selected = s.selected,
                                           .compute = DType::kBF16,
                                           .kv_code = kv,
                                           .gradient_code = gradients,
                                           .equal_lists = equal,
                                           .hot = is_page_code(gradients) ? s.hot : 0});
    }
}

// Of the fourth, several ranges of ranks, whose sums wait.
INSTANTIATE_TEST_SUITE_P(Small, CodedAttentionOnCuda,
                         testing::Values(Size{4, 4, 2, 64, 128, 20, 6},
                                         Size{2, 8, 1, 256, 64, 9, 3},
                                         Size{3, 6, 3, 80, 64, 30, 5, 3},
                                         Size{2, 4, 4, 128, 16, 300, 150, 20},
                                         Size{2, 7, 1, 64, 128, 12, 4}));
INSTANTIATE_TEST_SUITE_P(Large, CodedAttentionOnCuda,
                         testing::Values(Size{8, 14, 2, 128, 128, 40, 16, 5}));

}  // namespace
}  // namespace longstride::ops
