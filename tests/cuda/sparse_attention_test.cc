// Which lists of sparse attention cuDNN computes; src/ops/cases says whether the results are right.
#include <gtest/gtest.h>

#include <string>

#include "ops/cases/registry.h"
#include "ops/cases/run.h"
#include "ops/cuda/library_context.h"

namespace longstride::ops {
namespace {

bool contains(const std::string& label, const char* word) {
  return label.find(word) != std::string::npos;
}

TEST(SparseAttention, GoesToCudnnIfListsHaveEqualLengthsAndHideNothing) {
  if (cuda::cudnn_version() == "none") GTEST_SKIP() << "no cuDNN";
  int by_cudnn = 0, by_us = 0;
  for (const OpCase& op : op_cases()) {
    if (op.name != "paged_attention_forward") continue;
    for (const Variant& v : op.tests16) {
      if (!contains(v.label, "selected=") || contains(v.label, "in order")) continue;
      const bool ours = contains(v.label, "document=") || contains(v.label, "earlier=") ||
                        contains(v.label, "T=150 ");
      // A device of its own has no plans yet.
      const std::unique_ptr<Device> device = make_cuda_device();
      run_problem(*device, v.make());
      Stream& stream = device->stream();
      const std::int64_t plans = cuda::libraries_of(stream).attention(stream).plans_made();
      EXPECT_EQ(plans == 0, ours) << v.label << ": " << plans << " plans";
      ++(ours ? by_us : by_cudnn);
    }
  }
  EXPECT_GT(by_cudnn, 0);
  EXPECT_GT(by_us, 0);
}

}  // namespace
}  // namespace longstride::ops
