#include "ops/swiglu.h"

#include <algorithm>
#include <array>

#include "base/thread_pool.h"
#include "ops/cpu/simd_math.h"
#include "ops/cpu/widen.h"

namespace longstride::ops::cpu {
namespace {

LS_SIMD_CLONES void forward(const float* gate, const float* up, std::int64_t n, float* y) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) y[i] = gate[i] / (1.0f + exp_approx(-gate[i])) * up[i];
}

LS_SIMD_CLONES void gelu_forward(const float* gate, const float* up, std::int64_t n, float* y) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    const float g = gate[i];
    y[i] = g / (1.0f + exp_approx(-g * (kGelu + kGeluCubic * g * g))) * up[i];
  }
}

// All three inputs are read before either output is written, because they may be the same memory.
LS_SIMD_CLONES void backward(const float* dy, const float* gate, const float* up, std::int64_t n,
                             float* dgate, float* dup) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    const float g = gate[i], u = up[i], d = dy[i];
    const float sigmoid = 1.0f / (1.0f + exp_approx(-g));
    dgate[i] = d * u * sigmoid * (1.0f + g * (1.0f - sigmoid));
    dup[i] = d * g * sigmoid;
  }
}

LS_SIMD_CLONES void gelu_backward(const float* dy, const float* gate, const float* up,
                                  std::int64_t n, float* dgate, float* dup) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    const float g = gate[i], u = up[i], d = dy[i];
    const float sigmoid = 1.0f / (1.0f + exp_approx(-g * (kGelu + kGeluCubic * g * g)));
    const float slope = g * (kGelu + 3.0f * kGeluCubic * g * g);  // g times the derivative of 2u
    dgate[i] = d * u * sigmoid * (1.0f + slope * (1.0f - sigmoid));
    dup[i] = d * g * sigmoid;
  }
}

}  // namespace

void swiglu_forward(Stream&, const SwigluForward& args) {
  const Shape& shape = args.gate_TF.shape();
  const float *gate = args.gate_TF.as<float>(), *up = args.up_TF.as<float>();
  float* y = args.y_TW.as<float>();
  const std::int64_t elements = shape.elements();
  const auto run = args.activation == Activation::kSilu ? forward : gelu_forward;
  if (args.y_TW.shape() != shape) {
    const std::int64_t F = shape[1], W = args.y_TW.dim(1);
    parallel_for(shape[0], [&](std::int64_t t) { run(gate + t * F, up + t * F, F, y + t * W); });
    return;
  }
  parallel_for(pieces_of(elements), [&](std::int64_t piece) {
    const std::int64_t i = piece * kPiece;
    run(gate + i, up + i, std::min(kPiece, elements - i), y + i);
  });
}

void swiglu_backward(Stream&, const SwigluBackward& args) {
  const Shape& shape = args.gate_TF.shape();
  const float *dy = args.dy_TF.as<float>(), *gate = args.gate_TF.as<float>();
  const float* up = args.up_TF.as<float>();
  float *dgate = args.dgate_TF.as<float>(), *dup = args.dup_TF.as<float>();
  const std::int64_t elements = shape.elements();
  const bool silu = args.activation == Activation::kSilu;
  const auto run = silu ? backward : gelu_backward;
  const auto product = silu ? forward : gelu_forward;
  float* const y = args.y_TF.present() ? args.y_TF.as<float>() : nullptr;
  parallel_for(pieces_of(elements), [&](std::int64_t piece) {
    const std::int64_t i = piece * kPiece, n = std::min(kPiece, elements - i);
    std::array<float, kPiece> made;  // y may be dy
    if (y != nullptr) product(gate + i, up + i, n, made.data());
    run(dy + i, gate + i, up + i, n, dgate + i, dup + i);
    if (y != nullptr) std::copy_n(made.data(), n, y + i);
  });
}

}  // namespace longstride::ops::cpu
