// Invariant 7 for attention and the loss head: pages and logits of more than 2^31 elements, with
// values for which the results are known.
//   T queries   H heads, each with keys of its own   C head size   P tokens of a page
#include <cuda_runtime.h>

#include <cmath>

#include "attention/visits.h"
#include "ops/loss_head.h"
#include "ops/paged_attention.h"
#include "tests/cuda/gpu_fixture.h"

namespace longstride::ops {
namespace {

constexpr std::int64_t kT = 128, kH = 4, kC = 128, kP = 128;
// One chunk more than 2^31 elements of keys and values.
constexpr std::int64_t kTokens = (std::int64_t{1} << 31) / (2 * kH * kC) + 2 * kT;
// What memory full of bytes 0x3f holds.
constexpr int kByte = 0x3f;
double filled(DType t) { return t == DType::kBF16 ? 0.74609375 : 0.74705879; }

double at(const std::vector<std::byte>& bytes, DType t, std::int64_t i) {
  return t == DType::kBF16
             ? static_cast<double>(to_float(reinterpret_cast<const bf16*>(bytes.data())[i]))
             : static_cast<double>(reinterpret_cast<const float*>(bytes.data())[i]);
}

class LargeAttention : public OnGpu {
 protected:
  // All queries are zero, so each sees all its keys with the same weight.
  void run(DType compute, const std::vector<std::int64_t>& documents) {
    const SequenceLayout layout{kTokens, kT, kP, documents};
    VisitLists lists;
    lists.reserve(layout);
    lists.build(layout, layout.chunks() - 1, 0);
    std::vector<std::int32_t> slots(static_cast<std::size_t>(layout.pages()));
    for (std::size_t i = 0; i < slots.size(); ++i) slots[i] = static_cast<std::int32_t>(i);
    const auto pages = [&](DType t) {
      const View pool = make(t, {layout.pages(), kP, 2, kH * kC});
      EXPECT_GT(pool.elements(), std::int64_t{1} << 31);
      return PagesView{static_cast<std::byte*>(pool.data()),
                       slots.data(),
                       2 * kP * kH * kC * size_of(t),
                       kP,
                       kH,
                       kC,
                       t};
    };
    const PagesView kv = pages(compute), gradients = pages(DType::kF32);
    const auto bytes_of_pool = static_cast<std::size_t>(layout.pages() * kv.page_bytes);
    gpu().stream().synchronize();  // the memory is zeroed by now
    ASSERT_EQ(cudaMemset(kv.base, kByte, bytes_of_pool), cudaSuccess);
    const View q = make(compute, {kT, kH, kC}), dout = make(compute, q.shape()),
               out = make(compute, q.shape()), dq = make(compute, q.shape()),
               lse = make(DType::kF32, {kH, kT});
    gpu().stream().synchronize();
    ASSERT_EQ(cudaMemset(dout.data(), kByte, static_cast<std::size_t>(dout.bytes())), cudaSuccess);
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    const View scratch = make(
        DType::kF32, {paged_attention_scratch_elements(stream(), {kT, kH, kH, kC, kP, compute})});
    paged_attention_forward(stream(), {q, kv, lists.view(), out, lse, 0.5f, scratch});
    paged_attention_backward(stream(),
                             {q, out, lse, dout, kv, gradients, lists.view(), dq, 0.5f, scratch});

    const std::vector<std::byte> got_out = bytes(out), got_lse = bytes(lse);
    const std::int64_t chunk = layout.chunk_begin(layout.chunks() - 1);
    double weights = 0;  // of a key that all queries of the first document see
    for (std::int64_t t = 0; t < kT; ++t) {
      const auto keys = static_cast<double>(chunk + t + 1 - layout.document_start(chunk + t));
      if (layout.document_start(chunk + t) == 0) weights += 1 / keys;
      EXPECT_NEAR(at(got_lse, DType::kF32, t), std::log(keys), 1e-3) << t;
      // Matrix units cut sums off rather than round them: of two million equal terms, 1.5% is lost.
      EXPECT_NEAR(at(got_out, compute, t * kH * kC), filled(compute), 0.015) << t;
    }
    for (const std::int64_t page : {std::int64_t{0}, layout.pages() / 2, layout.pages() - 2}) {
      const View values(gradients.plane(page, 1), DType::kF32, {kH * kC});
      EXPECT_NEAR(at(bytes(values), DType::kF32, 7) / (weights * filled(compute)), 1, 0.02)
          << "page " << page;
    }
  }
};

TEST_F(LargeAttention, Bf16Past2To31) { run(DType::kBF16, {0}); }
TEST_F(LargeAttention, Bf16DocumentsPast2To31) { run(DType::kBF16, {0, kTokens - kT / 2}); }
TEST_F(LargeAttention, F32Past2To31) { run(DType::kF32, {0}); }

class LargeLossHead : public OnGpu {};

TEST_F(LargeLossHead, LogitsPast2To31) {
  const std::int64_t V = 131072, D = 64, T = (std::int64_t{1} << 31) / V + 64;
  const View w = random(DType::kBF16, {V, D}), row = random(DType::kBF16, {1, D});
  // Every token is the same, so all losses and gradients are.
  const View x = make(DType::kBF16, {T, D}), dx = make(DType::kBF16, {T, D}),
             dw = make(DType::kF32, {V, D}), losses = make(DType::kF32, {T}),
             correct = make(DType::kI32, {T}), targets = make(DType::kI32, {T});
  for (std::int64_t t = 0; t < T; ++t) convert(stream(), {row, x.rows(t, 1)});
  const View scratch =
      make(DType::kF32, {loss_head_scratch_elements(stream(), {T, w, DType::kBF16})});
  loss_head(stream(), {x, w, targets, losses, correct, dx, dw, 1.0f, T, scratch});
  const std::vector<std::byte> all = bytes(losses), gradients = bytes(dx);
  EXPECT_TRUE(std::isfinite(at(all, DType::kF32, 0)));
  for (std::int64_t t = 0; t < T; ++t) {
    ASSERT_EQ(at(all, DType::kF32, t), at(all, DType::kF32, 0)) << t;
    ASSERT_EQ(at(gradients, DType::kBF16, t * D + 5), at(gradients, DType::kBF16, 5)) << t;
  }
}

}  // namespace
}  // namespace longstride::ops
