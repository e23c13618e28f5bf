#include "ops/loss_head.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/thread_pool.h"
#include "ops/cpu/gemm.h"
#include "ops/cpu/simd_math.h"
#include "ops/cpu/widen.h"

namespace longstride::ops::cpu {
namespace {

// Rows of the vocabulary that are widened at a time if the weight is not F32.
constexpr std::int64_t kVocabularyBlock = 4096;

// Elements from one row of logits to the next. Vocabularies are often nearly a power of two; rows
// that far apart would all compete for the same few sets of the cache.
std::int64_t row_stride(std::int64_t vocabulary) { return (vocabulary + 15) / 16 * 16 + 16; }

}  // namespace

std::int64_t loss_head_scratch_elements(const LossHeadShape& shape) {
  const std::int64_t V = shape.w_VD.dim(0), D = shape.w_VD.dim(1);
  const std::int64_t wide =
      shape.w_VD.dtype() == DType::kF32 ? 0 : std::min(V, kVocabularyBlock) * D;
  return shape.block_rows * row_stride(V) + wide;
}

// Keeps the logits of a block near 16 MiB.
std::int64_t loss_head_block_rows(const std::int64_t& vocabulary) {
  constexpr std::int64_t kLogits = (std::int64_t{16} << 20) / 4;
  LS_CHECK(vocabulary >= 1, "vocabulary {}", vocabulary);
  // With fewer than 128 rows, the products would spend their time reading weights.
  return std::clamp<std::int64_t>(kLogits / vocabulary / 64 * 64, 128, 1024);
}

namespace {

LS_SIMD_CLONES float largest(const float* x, std::int64_t n) {
  float m = -std::numeric_limits<float>::infinity();
#pragma omp simd reduction(max : m)
  for (std::int64_t i = 0; i < n; ++i) m = x[i] > m ? x[i] : m;
  return m;
}

LS_SIMD_CLONES bool contains(const float* x, std::int64_t n, float value) {
  int found = 0;
#pragma omp simd reduction(| : found)
  for (std::int64_t i = 0; i < n; ++i) found |= static_cast<int>(x[i] == value);
  return found != 0;
}

// x = exp(x - shift); returns the sum.
LS_SIMD_CLONES float exponentials(float* x, std::int64_t n, float shift) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < n; ++i) {
    x[i] = exp_approx(x[i] - shift);
    sum += x[i];
  }
  return sum;
}

LS_SIMD_CLONES void multiply(float* x, std::int64_t n, float factor) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) x[i] *= factor;
}

float weight_of(const LossHead& args, std::int64_t t, float loss) {
  if (!args.weights_T.present()) return 1.0f;
  const float weight = args.weights_T.as<float>()[t];
  if (!args.earlier_T.present()) return weight;
  return clipped_weight(weight, std::exp(-loss - args.earlier_T.as<float>()[t]), args.clip);
}

// Processes one row of logits. If gradients are wanted, `logits` then holds the row's gradient,
// (p - onehot) * scale * weight.
void cross_entropy_row(const LossHead& args, std::int64_t t, float* logits) {
  const std::int64_t V = args.w_VD.dim(0), target = args.targets_T.as<std::int32_t>()[t];
  float* loss = args.losses_T.as<float>() + t;
  std::int32_t* correct =
      args.correct_T.present() ? args.correct_T.as<std::int32_t>() + t : nullptr;
  const bool wants_gradient = args.dx_TD.present();
  if (target < 0) {
    *loss = 0;
    if (correct != nullptr) *correct = 0;
    if (wants_gradient) std::fill_n(logits, V, 0.0f);
    return;
  }
  const float top = largest(logits, V), wanted = logits[target];
  if (correct != nullptr) *correct = wanted == top && !contains(logits, target, top) ? 1 : 0;
  // Sums short runs in float, and their sums in double.
  constexpr std::int64_t kRun = 2048;
  double sum = 0;
  for (std::int64_t i = 0; i < V; i += kRun) {
    sum += static_cast<double>(exponentials(logits + i, std::min(kRun, V - i), top));
  }
  *loss =
      static_cast<float>(std::log(sum) + static_cast<double>(top) - static_cast<double>(wanted));
  if (wants_gradient) {
    const float scale = args.scale * weight_of(args, t, *loss);
    multiply(logits, V, static_cast<float>(static_cast<double>(scale) / sum));
    logits[target] -= scale;
  }
}

// Calls f(begin, rows, weights) for blocks of the vocabulary with their weights as F32; a single
// block if they are F32 already.
template <class F>
void for_vocabulary_blocks(const ConstView& w_VD, float* wide, const F& f) {
  const std::int64_t V = w_VD.dim(0);
  if (w_VD.dtype() == DType::kF32) return f(std::int64_t{0}, V, w_VD.as<float>());
  for (std::int64_t begin = 0; begin < V; begin += kVocabularyBlock) {
    const std::int64_t rows = std::min(kVocabularyBlock, V - begin);
    widen_all(w_VD.rows(begin, rows), wide);
    f(begin, rows, static_cast<const float*>(wide));
  }
}

void check_targets(const LossHead& args) {
  const std::int64_t V = args.w_VD.dim(0);
  const std::int32_t* targets = args.targets_T.as<std::int32_t>();
  for (std::int64_t t = 0; t < args.targets_T.dim(0); ++t)
    LS_CHECK(targets[t] < V, "target {} at {} of a vocabulary of {}", targets[t], t, V);
}

// Processes rows [begin, begin + rows).
void loss_block(const LossHead& args, std::int64_t begin, std::int64_t rows) {
  const std::int64_t V = args.w_VD.dim(0), D = args.w_VD.dim(1);
  const float* x = args.x_TD.as<float>() + begin * D;
  float* dx = args.dx_TD.present() ? args.dx_TD.as<float>() + begin * D : nullptr;
  const std::int32_t* targets = args.targets_T.as<std::int32_t>() + begin;
  if (std::all_of(targets, targets + rows, [](std::int32_t target) { return target < 0; })) {
    std::fill_n(args.losses_T.as<float>() + begin, rows, 0.0f);
    if (args.correct_T.present()) std::fill_n(args.correct_T.as<std::int32_t>() + begin, rows, 0);
    if (dx != nullptr) std::fill_n(dx, rows * D, 0.0f);
    return;
  }

  float* logits = args.scratch.as<float>();
  const std::int64_t stride = row_stride(V);
  float* wide = logits + args.block_rows * stride;
  for_vocabulary_blocks(args.w_VD, wide, [&](std::int64_t first, std::int64_t n, const float* w) {
    gemm({.trans_b = Trans::kYes,
          .m = rows,
          .n = n,
          .k = D,
          .a = x,
          .lda = D,
          .b = w,
          .ldb = D,
          .c = logits + first,
          .ldc = stride});
  });
  parallel_for(rows,
               [&](std::int64_t r) { cross_entropy_row(args, begin + r, logits + r * stride); });
  if (dx == nullptr) return;
  for_vocabulary_blocks(args.w_VD, wide, [&](std::int64_t first, std::int64_t n, const float* w) {
    gemm({.m = rows,
          .n = D,
          .k = n,
          .a = logits + first,
          .lda = stride,
          .b = w,
          .ldb = D,
          .c = dx,
          .ldc = D,
          .accumulate = first > 0});
  });
  if (!args.dw_VD.present()) return;
  gemm({.trans_a = Trans::kYes,
        .m = V,
        .n = D,
        .k = rows,
        .a = logits,
        .lda = stride,
        .b = x,
        .ldb = D,
        .c = args.dw_VD.as<float>(),
        .ldc = D,
        .accumulate = true});
}

}  // namespace

void loss_head(Stream&, const LossHead& args) {
  check_targets(args);
  const std::int64_t T = args.x_TD.dim(0);
  for (std::int64_t begin = 0; begin < T; begin += args.block_rows) {
    loss_block(args, begin, std::min(args.block_rows, T - begin));
  }
}

}  // namespace longstride::ops::cpu
