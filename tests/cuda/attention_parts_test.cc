#include "tests/attention/parts_check.h"
#include "tests/cuda/gpu_fixture.h"

namespace longstride {
namespace {

class AttentionParts : public OnGpu {};

TEST_F(AttentionParts, TheSameBits) {
  for (const std::int64_t start : {0, 33'001}) {
    const SequenceLayout layout{32'768 * 2 + 300, 512, 128,
                                start == 0 ? std::vector<std::int64_t>{0}
                                           : std::vector<std::int64_t>{0, start}};
    PartsCheck(gpu(), {.layout = layout, .H = 4, .K = 1, .C = 64, .compute = DType::kBF16}).run();
  }
}

}  // namespace
}  // namespace longstride
