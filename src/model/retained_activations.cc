#include "model/retained_activations.h"

#include <utility>

#include "base/error.h"

namespace longstride {
namespace {

constexpr std::int64_t kAlignment = 256;

std::int64_t aligned(std::int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

template <class Visit>
void RetainedLayout::for_tensors(std::int64_t T, const Visit& visit) const {
  const Sizes& s = sizes_;
  using P = LayerPlaces;
  visit(Retained::kInput, &P::input_TD, s.compute, Shape{T, s.D});
  visit(Retained::kQ, &P::q_THC, s.compute, Shape{T, s.H, s.C});
  if (s.keys_too) visit(Retained::kQ, &P::k_TKC, s.compute, Shape{T, s.K, s.C});
  visit(Retained::kAttention, &P::attention_THC, s.compute, Shape{T, s.H, s.C});
  visit(Retained::kAttention, &P::lse_HT, DType::kF32, Shape{s.H, T});
  visit(Retained::kMid, &P::mid_TD, s.compute, Shape{T, s.D});
  visit(Retained::kGate, &P::gate_TF, s.compute, Shape{T, s.F});
  visit(Retained::kUp, &P::up_TF, s.compute, Shape{T, s.F});
}

RetainedLayout::RetainedLayout(const ModelConfig& config, DType compute, std::int64_t chunk_tokens,
                               const std::vector<Retention>& retained)
    : sizes_{.layers = config.layers,
             .D = config.hidden_size,
             .H = config.query_heads,
             .K = config.kv_heads,
             .C = config.head_size,
             .F = config.ffn_size,
             .keys_too = config.qk_norm,
             .compute = compute},
      chunk_tokens_(chunk_tokens),
      retained_(retained) {
  if (retained_.empty()) return;
  offsets_.reserve(retained_.size() + 1);
  offsets_.push_back(0);
  for (const Retention tensors : retained_) {
    std::int64_t end = offsets_.back();
    for_tensors(chunk_tokens_,
                [&](Retained which, View LayerPlaces::*, DType dtype, const Shape& shape) {
                  if (tensors.has(which)) end += aligned(shape.elements() * size_of(dtype));
                });
    offsets_.push_back(end);
  }
}

LayerPlaces RetainedLayout::places(std::byte* base, std::int64_t chunk, std::int64_t layer,
                                   std::int64_t T, Retention tensors) const {
  LayerPlaces places;
  if (tensors.empty()) return places;
  const auto i = static_cast<std::size_t>(chunk * sizes_.layers + layer);
  LS_CHECK(i < retained_.size() && retained_[i].has(tensors) && T <= chunk_tokens_,
           "chunk {} layer {}: activations {:b} are not retained", chunk, layer, tensors.bits());
  std::int64_t offset = offsets_[i];
  for_tensors(T, [&](Retained which, View LayerPlaces::*place, DType dtype, const Shape& shape) {
    if (!retained_[i].has(which)) return;
    if (tensors.has(which))
      places.*place = View(base == nullptr ? nullptr : base + offset, dtype, shape);
    offset += aligned(shape.elements() / T * chunk_tokens_ * size_of(dtype));
  });
  return places;
}

RetainedActivations::RetainedActivations(Device& device, RetainedLayout layout)
    : layout_(std::move(layout)) {
  if (layout_.bytes() > 0) memory_ = device.allocate(layout_.bytes(), "retained activations");
}

}  // namespace longstride
