#include "model/retained_activations.h"

#include <utility>

#include "base/error.h"

namespace longstride {

RetainedLayout::RetainedLayout(const ModelConfig& config, DType compute, std::int64_t chunk_tokens,
                               const std::vector<Retention>& retained, const HeadShare& heads)
    : sizes_(config, compute, heads),
      layers_(config.layers),
      chunk_tokens_(chunk_tokens),
      retained_(retained) {
  if (retained_.empty()) return;
  offsets_.reserve(retained_.size() + 1);
  offsets_.push_back(0);
  for (const Retention tensors : retained_)
    offsets_.push_back(offsets_.back() + activation_bytes(sizes_, chunk_tokens_, tensors));
}

LayerPlaces RetainedLayout::places(std::byte* base, std::int64_t chunk, std::int64_t layer,
                                   std::int64_t T, Retention tensors) const {
  LayerPlaces places;
  if (tensors.empty()) return places;
  const auto i = static_cast<std::size_t>(chunk * layers_ + layer);
  LS_CHECK(i < retained_.size() && retained_[i].has(tensors) && T <= chunk_tokens_,
           "chunk {} layer {}: activations {:b} are not retained", chunk, layer, tensors.bits());
  std::int64_t offset = offsets_[i];
  const auto rooms = activation_rooms(sizes_, chunk_tokens_);
  std::size_t next = 0;
  for_activations(
      sizes_, T,
      [&](Retained which, const char*, const auto& member, DType dtype, const Shape& shape) {
        const std::int64_t room = rooms[next++];
        if (!retained_[i].has(which)) return;
        if (tensors.has(which))
          member(places) = View(base == nullptr ? nullptr : base + offset, dtype, shape);
        offset += room;
      });
  return places;
}

RetainedActivations::RetainedActivations(Device& device, RetainedLayout layout)
    : layout_(std::move(layout)) {
  if (layout_.bytes() > 0) memory_ = device.allocate(layout_.bytes(), "retained activations");
}

}  // namespace longstride
