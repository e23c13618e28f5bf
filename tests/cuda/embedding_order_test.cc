// The embedding's gradient is summed in the order of a token's rows, bit for bit, however often the
// token occurs.
#include "ops/embedding.h"

#include <cstring>

#include "tensor/token_rows.h"
#include "tests/cuda/gpu_fixture.h"

namespace longstride::ops {
namespace {

using EmbeddingOrder = OnGpu;

std::vector<float> floats(const std::vector<std::byte>& bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

TEST_F(EmbeddingOrder, IsThatOfTheRowsForRareAndForFrequentTokens) {
  const std::int64_t V = 300;
  for (const std::int64_t T : {1000, 4096}) {
    for (const std::int64_t D : {40, 1096}) {
      for (const std::int64_t frequent : {1, 2, 5, 12, 5000}) {
        std::vector<std::int32_t> tokens;
        for (std::int64_t t = 0; t < T; ++t)
          tokens.push_back(static_cast<std::int32_t>(t % frequent == 0 ? 7 : t * t % V));
        TokenRows sorted;
        sorted.build(tokens);
        const View groups = make(DType::kI32, {std::ssize(sorted.groups()), 4}),
                   rows = make(DType::kI32, {T}), f32 = random(DType::kF32, {T, D}),
                   dy = make(DType::kBF16, {T, D}), dtable = random(DType::kF32, {V, D});
        gpu().copy_from_host(groups.data(), sorted.groups().data(), groups.bytes());
        gpu().copy_from_host(rows.data(), sorted.rows().data(), rows.bytes());
        convert(stream(), {f32, dy});
        convert(stream(), {dy, f32});
        const std::vector<float> terms = floats(bytes(f32));
        std::vector<float> want = floats(bytes(dtable));
        embedding_backward(stream(), {groups, rows, dy, dtable});
        for (std::size_t t = 0; t < tokens.size(); ++t)
          for (std::size_t i = 0; i < static_cast<std::size_t>(D); ++i)
            want[static_cast<std::size_t>(tokens[t] * D) + i] +=
                terms[t * static_cast<std::size_t>(D) + i];
        EXPECT_TRUE(floats(bytes(dtable)) == want) << T << " x " << D << ", 1/" << frequent;
      }
    }
  }
}

}  // namespace
}  // namespace longstride::ops
