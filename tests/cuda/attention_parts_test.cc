#include "tests/attention/parts_check.h"
#include "tests/cuda/gpu_fixture.h"

namespace longstride {
namespace {

class AttentionParts : public OnGpu {};

TEST_F(AttentionParts, TheSameBits) {
  for (const std::int64_t start : {0, 33'001})
    for (const bool exact : {true, false}) {
      const SequenceLayout layout{32'768 * 2 + 8'192 + 300, 1'024, 128,
                                  start == 0 ? std::vector<std::int64_t>{0}
                                             : std::vector<std::int64_t>{0, start}};
      PartsCheck(gpu(), {.layout = layout,
                         .H = 8,
                         .K = 2,
                         .C = 128,
                         .compute = DType::kBF16,
                         .exact = exact})
          .run();
    }
}

}  // namespace
}  // namespace longstride
