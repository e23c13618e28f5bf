// The seven projections of a layer, and the inputs that they share.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "model/config.h"
#include "model/parameter_specs.h"

namespace longstride {

// Of q, k, v; of o; of gate and up; of down.
enum class Input : std::uint8_t { kAttention, kOutput, kFeedForward, kProduct };
inline constexpr std::array kInputs = {Input::kAttention, Input::kOutput, Input::kFeedForward,
                                       Input::kProduct};

struct Projection {
  std::string_view name;    // "q_proj", as in targets of adapters
  std::string_view module;  // "self_attn.q_proj", as in parameters' names
  Input input;
  View LayerParameters::*weight;
  View LayerParameters::*bias;
  View LayerParameters::*a;  // of its adapter
  View LayerParameters::*b;
  View LayerParameters::*tail;  // of a quantized weight: scale * B
};

inline constexpr std::array<Projection, 7> kProjections = {{
    {"q_proj", "self_attn.q_proj", Input::kAttention, &LayerParameters::q, &LayerParameters::q_bias,
     &LayerParameters::q_a, &LayerParameters::q_b, &LayerParameters::q_tail},
    {"k_proj", "self_attn.k_proj", Input::kAttention, &LayerParameters::k, &LayerParameters::k_bias,
     &LayerParameters::k_a, &LayerParameters::k_b, &LayerParameters::k_tail},
    {"v_proj", "self_attn.v_proj", Input::kAttention, &LayerParameters::v, &LayerParameters::v_bias,
     &LayerParameters::v_a, &LayerParameters::v_b, &LayerParameters::v_tail},
    {"o_proj", "self_attn.o_proj", Input::kOutput, &LayerParameters::o, &LayerParameters::o_bias,
     &LayerParameters::o_a, &LayerParameters::o_b, &LayerParameters::o_tail},
    {"gate_proj", "mlp.gate_proj", Input::kFeedForward, &LayerParameters::gate,
     &LayerParameters::gate_bias, &LayerParameters::gate_a, &LayerParameters::gate_b,
     &LayerParameters::gate_tail},
    {"up_proj", "mlp.up_proj", Input::kFeedForward, &LayerParameters::up, &LayerParameters::up_bias,
     &LayerParameters::up_a, &LayerParameters::up_b, &LayerParameters::up_tail},
    {"down_proj", "mlp.down_proj", Input::kProduct, &LayerParameters::down,
     &LayerParameters::down_bias, &LayerParameters::down_a, &LayerParameters::down_b,
     &LayerParameters::down_tail},
}};
namespace projection {
inline constexpr const Projection &kQ = kProjections[0], &kK = kProjections[1],
                                  &kV = kProjections[2], &kO = kProjections[3],
                                  &kGate = kProjections[4], &kUp = kProjections[5],
                                  &kDown = kProjections[6];
}  // namespace projection

constexpr std::span<const Projection> projections_of(Input input) {
  const std::span<const Projection> all(kProjections);
  switch (input) {
    case Input::kAttention:
      return all.subspan(0, 3);
    case Input::kOutput:
      return all.subspan(3, 1);
    case Input::kFeedForward:
      return all.subspan(4, 2);
    case Input::kProduct:
      break;
  }
  return all.subspan(6, 1);
}

// Where a projection's A begins in the stack of its input; that of the projection before it, if it
// has B alone (files that hold several projections in one tensor have one A for them).
inline std::int64_t adapter_row(const LayerParameters& layer, const Projection& projection) {
  std::int64_t begin = 0, end = 0;
  for (const Projection& other : projections_of(projection.input)) {
    if ((layer.*other.a).present()) {
      begin = end;
      end += (layer.*other.a).dim(0);
    }
    if (&other == &projection) break;
  }
  return begin;
}

// The stacked A of an input's adapters.
constexpr View LayerParameters::*stacked_of(Input input) {
  switch (input) {
    case Input::kAttention:
      return &LayerParameters::attention_a;
    case Input::kOutput:
      return &LayerParameters::output_a;
    case Input::kFeedForward:
      return &LayerParameters::feed_forward_a;
    case Input::kProduct:
      break;
  }
  return &LayerParameters::product_a;
}

}  // namespace longstride
