// Invariant 7 for attention and the loss head: pages and logits of more than 2^31 elements, with
// values for which the results are known.
//   T queries   H heads, each with keys of its own   C head size   P tokens of a page
#include <cuda_runtime.h>

#include <cmath>

#include "attention/selected_lists.h"
#include "attention/visits.h"
#include "ops/loss_head.h"
#include "ops/paged_attention.h"
#include "tests/cuda/gpu_fixture.h"

namespace longstride::ops {
namespace {

constexpr std::int64_t kT = 128, kH = 4, kC = 128, kP = 128;
// 2^31 elements of keys and values, and two chunks more.
constexpr std::int64_t kTokens = (std::int64_t{1} << 31) / (2 * kH * kC) + 2 * kT;
// Bytes to fill memory with; the functions below give the elements' values.
constexpr int kPlus = 0x3f, kMinus = 0xbf;
double plus(DType t) { return t == DType::kBF16 ? 0.74609375 : 0.74705879; }
double minus(DType t) { return t == DType::kBF16 ? -1.4921875 : -1.49803913; }

double at(const std::vector<std::byte>& bytes, DType t, std::int64_t i) {
  return t == DType::kBF16
             ? static_cast<double>(to_float(reinterpret_cast<const bf16*>(bytes.data())[i]))
             : static_cast<double>(reinterpret_cast<const float*>(bytes.data())[i]);
}

class LargeAttention : public OnGpu {
 protected:
  // One page beyond 2^31 elements has keys like the queries, and positive values; all others have
  // negative ones. So a query that sees that page attends to it alone, and gives it all its
  // gradient.
  void run(DType compute, const std::vector<std::int64_t>& documents, bool selected = false) {
    const SequenceLayout layout{kTokens, kT, kP, documents};
    const std::int64_t found = layout.pages() - 2;
    VisitLists lists;
    lists.reserve(layout);
    if (selected) {
      SelectedLists pages;
      pages.reserve(layout, {{}, {3}});
      const std::vector<std::int32_t> some = {0, static_cast<std::int32_t>(found / 2),
                                              static_cast<std::int32_t>(found)};
      pages.store(layout.chunks() - 1, 0, some, 3);
      lists.build(layout, layout.chunks() - 1, pages, 0);
    } else {
      lists.build(layout, layout.chunks() - 1, 0);
    }
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
    ASSERT_EQ(cudaMemset(kv.base, kMinus, bytes_of_pool), cudaSuccess);
    ASSERT_EQ(cudaMemset(kv.plane(found, 0), kPlus, static_cast<std::size_t>(kv.page_bytes)),
              cudaSuccess);
    const View q = make(compute, {kT, kH, kC}), dout = make(compute, q.shape()),
               out = make(compute, q.shape()), dq = make(compute, q.shape()),
               lse = make(DType::kF32, {kH, kT});
    gpu().stream().synchronize();
    for (const View& x : {q, dout})
      ASSERT_EQ(cudaMemset(x.data(), kPlus, static_cast<std::size_t>(x.bytes())), cudaSuccess);
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    const PagedAttentionShape shape{kT, kH, kH, kC, kP, compute};
    const View scratch = make(DType::kF32, {paged_attention_scratch_elements(stream(), shape)});
    const auto segments = [&](bool backward) {
      return cut_keys(layout.keys(layout.chunks() - 1, 0),
                      paged_attention_cut(gpu().kind(), {shape, backward, true}));
    };
    const std::vector<KeySegment> forward = segments(false), backward = segments(true);
    paged_attention_forward(stream(),
                            {q, kv, lists.view(), out, lse, 0.5f, scratch, true, forward});
    paged_attention_backward(stream(), {q, out, lse, dout, kv, gradients, lists.view(), dq, 0.5f,
                                        scratch, true, backward});

    const std::vector<std::byte> got_out = bytes(out), got_lse = bytes(lse);
    const std::int64_t chunk = layout.chunk_begin(layout.chunks() - 1);
    const double value = plus(compute), other = minus(compute),
                 score = 0.5 * static_cast<double>(kC) * value;  // times the key's value
    std::int64_t seeing = 0;
    for (std::int64_t t = 0; t < kT; ++t) {
      const bool sees = layout.document_start(chunk + t) == 0;
      seeing += sees ? 1 : 0;
      const auto own = static_cast<double>(chunk + t + 1 - layout.document_start(chunk + t));
      EXPECT_NEAR(at(got_lse, DType::kF32, t),
                  sees ? score * value + std::log(kP) : score * other + std::log(own), 0.1)
          << t;
      EXPECT_NEAR(at(got_out, compute, t * kH * kC), sees ? value : other, 0.01) << t;
    }
    const auto gradient = [&](std::int64_t page) {
      return at(bytes(View(gradients.plane(page, 1), DType::kF32, {kH * kC})), DType::kF32, 7);
    };
    EXPECT_NEAR(gradient(found) / (value * static_cast<double>(seeing) / kP), 1, 0.02);
    for (const std::int64_t page : {std::int64_t{0}, found / 2, found - 1})
      EXPECT_NEAR(gradient(page), 0, 1e-6) << page;
  }
};

TEST_F(LargeAttention, Bf16Past2To31) { run(DType::kBF16, {0}); }
TEST_F(LargeAttention, Bf16DocumentsPast2To31) { run(DType::kBF16, {0, kTokens - kT / 2}); }
TEST_F(LargeAttention, F32Past2To31) { run(DType::kF32, {0}); }
TEST_F(LargeAttention, SelectedPast2To31) { run(DType::kBF16, {0}, true); }
TEST_F(LargeAttention, SelectedF32Past2To31) { run(DType::kF32, {0}, true); }

class LargeLossHead : public OnGpu {};

// The last rows, whose logits are beyond 2^31 elements, give the same results as alone.
TEST_F(LargeLossHead, LogitsPast2To31) {
  const std::int64_t V = 131072, D = 64, last = 64, more = (std::int64_t{1} << 31) / V,
                     T = more + last;
  const View w = random(DType::kBF16, {V, D}), alone = random(DType::kBF16, {last, D});
  const View x = make(DType::kBF16, {T, D});
  convert(stream(), {alone, x.rows(more, last)});
  const auto run = [&](const View& rows, const View& losses, const View& dx) {
    const std::int64_t n = rows.dim(0);
    const View scratch =
        make(DType::kF32, {loss_head_scratch_elements(stream(), {n, w, DType::kBF16})});
    loss_head(stream(), {rows, w, make(DType::kI32, {n}), losses, make(DType::kI32, {n}), dx,
                         make(DType::kF32, {V, D}), 1.0f, n, scratch});
  };
  const View losses = make(DType::kF32, {T}), dx = make(DType::kBF16, {T, D}),
             losses_alone = make(DType::kF32, {last}), dx_alone = make(DType::kBF16, {last, D});
  run(x, losses, dx);
  run(alone, losses_alone, dx_alone);
  const std::vector<std::byte> got = bytes(losses.rows(more, last)), want = bytes(losses_alone),
                               got_dx = bytes(dx.rows(more, last)), want_dx = bytes(dx_alone);
  for (std::int64_t t = 0; t < last; ++t) {
    EXPECT_NEAR(at(got, DType::kF32, t), at(want, DType::kF32, t), 0.05) << t;
    EXPECT_NEAR(at(got_dx, DType::kBF16, t * D + 5), at(want_dx, DType::kBF16, t * D + 5), 0.05)
        << t;
  }
  // Rows of zeros: all tokens are equally likely.
  EXPECT_NEAR(at(bytes(losses.rows(0, 1)), DType::kF32, 0), std::log(V), 1e-3);
}

}  // namespace
}  // namespace longstride::ops
