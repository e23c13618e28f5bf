// Invariant 7: tensors of more than 2^31 elements. An operation on a large tensor must give the
// same results for its last rows as for those rows alone; everything before them is zero.
#include "ops/embedding.h"
#include "ops/linear.h"
#include "ops/optimizer.h"
#include "ops/rms_norm.h"
#include "ops/rope.h"
#include "ops/swiglu.h"
#include "tensor/token_rows.h"
#include "tests/cuda/gpu_fixture.h"

namespace longstride::ops {
namespace {

constexpr std::int64_t kLimit = std::int64_t{1} << 31;

class Past2To31 : public OnGpu {
 protected:
  // `rows` zeroed rows more than `last`, and `last` at the end.
  View before(const View& last, std::int64_t rows) {
    Shape s = last.shape();
    s.set(0, s[0] + rows);
    const View whole = make(last.dtype(), s);
    convert(stream(), {last, whole.rows(rows, last.dim(0))});
    return whole;
  }
  void expect_same_end(const View& whole, const View& last) {
    EXPECT_GT(whole.elements(), kLimit);
    EXPECT_EQ(bytes(whole.rows(whole.dim(0) - last.dim(0), last.dim(0))), bytes(last));
  }
};

constexpr std::int64_t kRows = 40, kWidth = 4096, kMore = kLimit / kWidth;

TEST_F(Past2To31, Elementwise) {
  const View a = random(DType::kBF16, {kRows, kWidth}), b = random(DType::kBF16, {kRows, kWidth});
  const View large_a = before(a, kMore), large_b = before(b, kMore);
  add(stream(), {large_a, large_b, large_a});
  add(stream(), {a, b, a});
  expect_same_end(large_a, a);
  const View f16 = make(DType::kF16, large_a.shape()), small = make(DType::kF16, a.shape());
  convert(stream(), {large_a, f16});
  convert(stream(), {a, small});
  expect_same_end(f16, small);
  zero(stream(), {large_a});
  zero(stream(), {a});
  expect_same_end(large_a, a);
}

TEST_F(Past2To31, SwigluAndNorm) {
  const View gate = random(DType::kBF16, {kRows, kWidth}),
             up = random(DType::kBF16, {kRows, kWidth});
  const View large_gate = before(gate, kMore), large_up = before(up, kMore);
  const View y = make(DType::kBF16, gate.shape()), large_y = make(DType::kBF16, large_gate.shape());
  swiglu_forward(stream(), {gate, up, y});
  swiglu_forward(stream(), {large_gate, large_up, large_y});
  expect_same_end(large_y, y);
  swiglu_backward(stream(), {y, gate, up, gate, up});
  swiglu_backward(stream(), {large_y, large_gate, large_up, large_gate, large_up});
  expect_same_end(large_gate, gate);
  expect_same_end(large_up, up);

  const View w = random(DType::kBF16, {kWidth});
  rms_norm_forward(stream(), {gate, w, y});
  rms_norm_forward(stream(), {large_gate, w, large_y});
  expect_same_end(large_y, y);
  const View dw = make(DType::kF32, {kWidth}), large_dw = make(DType::kF32, {kWidth});
  const auto scratch = [&](const View& x) {
    return make(DType::kF32, {rms_norm_backward_scratch_elements(stream(), {x.dim(0), kWidth})});
  };
  rms_norm_backward(stream(), {up, gate, w, up, dw, scratch(gate)});
  rms_norm_backward(stream(), {large_up, large_gate, w, large_up, large_dw, scratch(large_gate)});
  expect_same_end(large_up, up);
}

TEST_F(Past2To31, Rope) {
  const std::int64_t T = 40, H = 32, C = 128, more = kLimit / (H * C);
  const View x = random(DType::kBF16, {T, H, C});
  const View cos = random(DType::kF32, {T, C / 2}), sin = random(DType::kF32, {T, C / 2});
  const View large_x = before(x, more), large_cos = before(cos, more),
             large_sin = before(sin, more);
  rope(stream(), {x, cos, sin});
  rope(stream(), {large_x, large_cos, large_sin});
  expect_same_end(large_x, x);
}

TEST_F(Past2To31, Pages) {
  const std::int64_t T = 256, K = 8, C = 128, P = 128;
  const View k = random(DType::kBF16, {T, K, C}), v = random(DType::kBF16, {T, K, C});
  const View cos = random(DType::kF32, {T, C / 2}), sin = random(DType::kF32, {T, C / 2});
  const std::int64_t page_elements = P * 2 * K * C, pages = kLimit / page_elements + 3;
  const View pool = make(DType::kF32, {pages, page_elements});
  const View small = make(DType::kF32, {2, page_elements});
  const std::vector<std::int32_t> high = {static_cast<std::int32_t>(pages - 2),
                                          static_cast<std::int32_t>(pages - 1)},
                                  low = {0, 1};
  const auto view = [&](const View& memory, const std::vector<std::int32_t>& slots) {
    return PagesView{static_cast<std::byte*>(memory.data()),
                     slots.data(),
                     page_elements * 4,
                     P,
                     K,
                     C,
                     DType::kF32};
  };
  append_kv(stream(), {k, v, cos, sin, view(pool, high), 0});
  append_kv(stream(), {k, v, cos, sin, view(small, low), 0});
  expect_same_end(pool, small);
  const View dk = make(DType::kBF16, k.shape()), dv = make(DType::kBF16, k.shape());
  const View large_dk = make(DType::kBF16, k.shape()), large_dv = make(DType::kBF16, k.shape());
  take_kv_gradient(stream(), {view(pool, high), 0, cos, sin, large_dk, large_dv});
  take_kv_gradient(stream(), {view(small, low), 0, cos, sin, dk, dv});
  EXPECT_EQ(bytes(large_dk), bytes(dk));
  EXPECT_EQ(bytes(large_dv), bytes(dv));
}

TEST_F(Past2To31, Embedding) {
  const std::int64_t T = 20;
  const View table = random(DType::kBF16, {kRows, kWidth}), large_table = before(table, kMore);
  std::vector<std::int32_t> tokens(T), large_tokens(T);
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    tokens[t] = static_cast<std::int32_t>(t * 7 % kRows);
    large_tokens[t] = tokens[t] + static_cast<std::int32_t>(kMore);
  }
  const View ids = make(DType::kI32, {T}), large_ids = make(DType::kI32, {T});
  gpu().copy_from_host(ids.data(), tokens.data(), ids.bytes());
  gpu().copy_from_host(large_ids.data(), large_tokens.data(), ids.bytes());
  const View y = make(DType::kBF16, {T, kWidth}), large_y = make(DType::kBF16, {T, kWidth});
  embedding_forward(stream(), {ids, table, y});
  embedding_forward(stream(), {large_ids, large_table, large_y});
  EXPECT_EQ(bytes(large_y), bytes(y));
  const View d = make(DType::kF32, table.shape()), large_d = make(DType::kF32, large_table.shape());
  const auto backward = [&](std::span<const std::int32_t> of, const View& dtable) {
    TokenRows sorted;
    sorted.build(of);
    const View groups = make(DType::kI32, {std::ssize(sorted.groups()), 4}),
               rows = make(DType::kI32, {T});
    gpu().copy_from_host(groups.data(), sorted.groups().data(), groups.bytes());
    gpu().copy_from_host(rows.data(), sorted.rows().data(), rows.bytes());
    embedding_backward(stream(), {groups, rows, y, dtable});
  };
  backward(tokens, d);
  backward(large_tokens, large_d);
  expect_same_end(large_d, d);
}

TEST_F(Past2To31, Linear) {
  const std::int64_t R = 128, I = 64, O = 65536, more = kLimit / O;
  const View x = random(DType::kBF16, {R, I}), w = random(DType::kBF16, {O, I});
  const View large_x = before(x, more);
  const View y = make(DType::kBF16, {R, O}), large_y = make(DType::kBF16, {R + more, O});
  const auto scratch = [&](std::int64_t rows) {
    return make(DType::kF32, {linear_scratch_elements(stream(), {rows, w, DType::kBF16})});
  };
  linear_forward(stream(), {.x_RI = x, .w_OI = w, .y_RO = y, .scratch = scratch(R)});
  linear_forward(stream(),
                 {.x_RI = large_x, .w_OI = w, .y_RO = large_y, .scratch = scratch(R + more)});
  // The larger shape may use another algorithm: then results are nearly the same.
  const std::vector<std::byte> got = bytes(large_y.rows(more, R)), want = bytes(y);
  double worst = 0;
  for (std::size_t i = 0; i < want.size() / 2; ++i) {
    const auto value = [&](const std::vector<std::byte>& from) {
      return static_cast<double>(to_float(reinterpret_cast<const bf16*>(from.data())[i]));
    };
    worst = std::max(worst, std::abs(value(got) - value(want)));
  }
  EXPECT_LT(worst, 0.3);  // of sums of 64 products, about 8 each
  const View db = make(DType::kF32, {O}), large_db = make(DType::kF32, {O});
  linear_backward(stream(), {.dy_RO = y, .db_O = db, .scratch = scratch(R)});
  const View large_dy = before(y, more);
  linear_backward(stream(), {.dy_RO = large_dy, .db_O = large_db, .scratch = scratch(R + more)});
  double difference = 0;
  const std::vector<std::byte> a = bytes(db), b = bytes(large_db);
  for (std::size_t i = 0; i < a.size() / 4; ++i)
    difference = std::max(
        difference, std::abs(static_cast<double>(reinterpret_cast<const float*>(a.data())[i]) -
                             static_cast<double>(reinterpret_cast<const float*>(b.data())[i])));
  EXPECT_LT(difference, 1e-3);
}

TEST_F(Past2To31, Optimizer) {
  const View g = random(DType::kF32, {kRows, kWidth}), large_g = before(g, kMore);
  const View sum = make(DType::kF64, {1}), large_sum = make(DType::kF64, {1});
  sum_of_squares(stream(), {g, sum});
  sum_of_squares(stream(), {large_g, large_sum});
  double a = 0, b = 0;
  gpu().copy_to_host(&a, sum.data(), 8);
  gpu().copy_to_host(&b, large_sum.data(), 8);
  EXPECT_NEAR(a, b, 1e-6 * a);
  const auto state = [&](const View& like) { return make(DType::kF32, like.shape()); };
  AdamW small{.g = g, .master = state(g), .m = state(g), .v = state(g)}, large;
  small.lr = 0.1;
  large = small;
  large.g = large_g;
  large.master = state(large_g), large.m = state(large_g), large.v = state(large_g);
  adamw(stream(), small);
  adamw(stream(), large);
  expect_same_end(large.master, small.master);
}

}  // namespace
}  // namespace longstride::ops
