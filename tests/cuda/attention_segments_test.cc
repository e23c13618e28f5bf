#include "tests/attention/segments_check.h"
#include "tests/cuda/gpu_fixture.h"

namespace longstride {
namespace {

// Keys of more than one segment.
class LargeAttentionParts : public OnGpu {};

TEST_F(LargeAttentionParts, TheSameBits) {
  for (const std::int64_t start : {0, 33'001, 65'100}) {
    const SequenceLayout layout{
        32'768 * 2 + 300, 512, 128,
        start == 0 ? std::vector<std::int64_t>{0} : std::vector<std::int64_t>{0, start}};
    SegmentsCheck(gpu(), {.layout = layout, .H = 4, .K = 1, .C = 64, .compute = DType::kBF16})
        .run();
  }
}

TEST_F(LargeAttentionParts, TheSameBitsWhereDocumentsBegin) {
  const std::int64_t begin = 32'768 * 2, tokens = begin + 300;
  for (const std::vector<std::int64_t>& starts :
       {std::vector<std::int64_t>{0, begin + 150, begin + 200},
        std::vector<std::int64_t>{0, 33'001, begin + 1}, std::vector<std::int64_t>{0, tokens - 1}})
    for (const DType gradient : {DType::kF32, DType::kBF16})
      SegmentsCheck(gpu(), {.layout = {tokens, 512, 128, starts},
                            .H = 4,
                            .K = 1,
                            .C = 64,
                            .compute = DType::kBF16,
                            .gradient = gradient})
          .run();
}

}  // namespace
}  // namespace longstride
