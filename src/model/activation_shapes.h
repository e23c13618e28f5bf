// Shapes of the activations that a layer may retain (schedule/retention.h), for code that treats
// them alike.
//   T tokens   D hidden   H query heads   K KV heads   C head size   F feed-forward
#pragma once

#include <cstdint>

#include "model/config.h"
#include "model/layer.h"
#include "schedule/retention.h"

namespace longstride {

inline constexpr std::int64_t kActivationAlignment = 256;
inline std::int64_t aligned_activation(std::int64_t bytes) {
  return (bytes + kActivationAlignment - 1) / kActivationAlignment * kActivationAlignment;
}

struct ActivationSizes {
  std::int64_t D = 0, H = 0, K = 0, C = 0, F = 0;
  bool keys_too = false;  // keys are retained with q
  DType compute = DType::kF32;

  ActivationSizes() = default;
  ActivationSizes(const ModelConfig& config, DType dtype)
      : D(config.hidden_size),
        H(config.query_heads),
        K(config.kv_heads),
        C(config.head_size),
        F(config.ffn_size),
        keys_too(config.qk_norm),
        compute(dtype) {}
};

// Calls f(which, name, member, dtype, shape) for each tensor of T tokens; member(tensors) is the
// tensor in a LayerTensors.
template <class Visit>
void for_activations(const ActivationSizes& s, std::int64_t T, const Visit& f) {
  const auto call = [&](Retained which, const char* name, const auto& member, const Shape& shape) {
    f(which, name, member, s.compute, shape);
  };
  call(
      Retained::kInput, "input", [](auto& t) -> auto& { return t.input_TD; }, Shape{T, s.D});
  call(
      Retained::kQ, "q", [](auto& t) -> auto& { return t.q_THC; }, Shape{T, s.H, s.C});
  if (s.keys_too)
    call(
        Retained::kQ, "k before its norm", [](auto& t) -> auto& { return t.k_TKC; },
        Shape{T, s.K, s.C});
  call(
      Retained::kAttention, "attention", [](auto& t) -> auto& { return t.attention_THC; },
      Shape{T, s.H, s.C});
  f(
      Retained::kAttention, "lse", [](auto& t) -> auto& { return t.lse_HT; }, DType::kF32,
      Shape{s.H, T});
  call(
      Retained::kMid, "mid", [](auto& t) -> auto& { return t.mid_TD; }, Shape{T, s.D});
  call(
      Retained::kGate, "gate", [](auto& t) -> auto& { return t.gate_TF; }, Shape{T, s.F});
  call(
      Retained::kUp, "up", [](auto& t) -> auto& { return t.up_TF; }, Shape{T, s.F});
}

// Bytes of the tensors in `which`, each aligned.
inline std::int64_t activation_bytes(const ActivationSizes& sizes, std::int64_t T,
                                     Retention which) {
  std::int64_t bytes = 0;
  for_activations(sizes, T,
                  [&](Retained kind, const char*, const auto&, DType dtype, const Shape& shape) {
                    if (which.has(kind))
                      bytes += aligned_activation(shape.elements() * size_of(dtype));
                  });
  return bytes;
}

}  // namespace longstride
