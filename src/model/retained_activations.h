// Activations that outlive their episode: one block of device memory with a place for each, known
// before the step. They live from the forward pass to their layer's backward pass.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "device/device.h"
#include "model/activation_shapes.h"
#include "schedule/retention.h"

namespace longstride {

// Their offsets in the block. Plain data.
class RetainedLayout {
 public:
  RetainedLayout() = default;
  // `retained` is by chunk, then layer, as in ScheduleOptions; chunks have up to `chunk_tokens`.
  RetainedLayout(const ModelConfig& config, DType compute, std::int64_t chunk_tokens,
                 const std::vector<Retention>& retained, const HeadShare& heads = {});

  std::int64_t bytes() const { return offsets_.empty() ? 0 : offsets_.back(); }
  // The places of `tensors`, for a chunk of T tokens; the layout must retain all of them.
  LayerPlaces places(std::byte* base, std::int64_t chunk, std::int64_t layer, std::int64_t T,
                     Retention tensors) const;

 private:
  ActivationSizes sizes_;
  std::int64_t layers_ = 0;
  std::int64_t chunk_tokens_ = 0;
  std::vector<Retention> retained_;
  std::vector<std::int64_t> offsets_;  // of (chunk, layer), and the end
};

// Owns the block. Not thread-safe: the thread that runs the step owns it.
class RetainedActivations {
 public:
  RetainedActivations(Device& device, RetainedLayout layout);
  LayerPlaces places(std::int64_t chunk, std::int64_t layer, std::int64_t T,
                     Retention tensors) const {
    return layout_.places(memory_ ? memory_->data() : nullptr, chunk, layer, T, tensors);
  }

 private:
  RetainedLayout layout_;
  std::unique_ptr<Memory> memory_;  // null where nothing is retained
};

}  // namespace longstride
