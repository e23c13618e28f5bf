// Shapes of the activations that a layer may retain (schedule/retention.h), for code that treats
// them alike.
//   T tokens   D hidden   H query heads   K KV heads   C head size   F feed-forward
#pragma once

#include <array>
#include <cstdint>

#include "model/config.h"
#include "model/layer.h"
#include "schedule/head_share.h"
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
  HeadShare heads = {};  // tensors are of a slice's tokens, but those of attention's own

  ActivationSizes() = default;
  ActivationSizes(const ModelConfig& config, DType dtype, const HeadShare& share = {})
      : D(config.hidden_size),
        H(config.query_heads),
        K(config.kv_heads),
        C(config.head_size),
        F(config.ffn_size),
        keys_too(config.qk_norm),
        compute(dtype),
        heads(share) {}
};

// Calls f(which, name, member, dtype, shape) for each tensor of a chunk of T tokens;
// member(tensors) is the tensor in a LayerTensors.
template <class Visit>
void for_activations(const ActivationSizes& s, std::int64_t chunk_tokens, const Visit& f) {
  const std::int64_t T = s.heads.rows(chunk_tokens);
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
      Shape{s.H / s.heads.ranks, chunk_tokens});
  call(
      Retained::kMid, "mid", [](auto& t) -> auto& { return t.mid_TD; }, Shape{T, s.D});
  call(
      Retained::kGate, "gate", [](auto& t) -> auto& { return t.gate_TF; }, Shape{T, s.F});
  call(
      Retained::kUp, "up", [](auto& t) -> auto& { return t.up_TF; }, Shape{T, s.F});
}

// Room for each tensor of for_activations in chunks of up to T tokens, whichever process of those
// that share heads it is: aligned bytes.
constexpr std::size_t kMostActivations = 8;
inline std::array<std::int64_t, kMostActivations> activation_rooms(ActivationSizes sizes,
                                                                   std::int64_t T) {
  sizes.heads.rank = 0;
  std::array<std::int64_t, kMostActivations> rooms{};
  std::size_t i = 0;
  for_activations(sizes, T,
                  [&](Retained, const char*, const auto&, DType dtype, const Shape& shape) {
                    rooms.at(i++) = aligned_activation(shape.elements() * size_of(dtype));
                  });
  return rooms;
}

// Of the tensors in `which`.
inline std::int64_t activation_bytes(const ActivationSizes& sizes, std::int64_t T,
                                     Retention which) {
  const auto rooms = activation_rooms(sizes, T);
  std::int64_t bytes = 0;
  std::size_t i = 0;
  for_activations(sizes, T, [&](Retained kind, const char*, const auto&, DType, const Shape&) {
    if (which.has(kind)) bytes += rooms[i];
    ++i;
  });
  return bytes;
}

}  // namespace longstride
