#include "model/rope_on_device.h"

#include <vector>

#include "model/rope_frequencies.h"

namespace longstride {

RopeViews rope_shapes(const ModelConfig& config) {
  const View frequencies(nullptr, DType::kF64, {config.head_size / 2});
  return {.frequencies = frequencies,
          .local_frequencies = config.local_rope ? frequencies : View()};
}

RopeOnDevice::RopeOnDevice(Device& device, const ModelConfig& config) {
  const RopeFrequencies rope = rope_frequencies(config),
                        local = config.local_rope
                                    ? rope_frequencies(*config.local_rope, config.head_size)
                                    : RopeFrequencies{};
  std::vector<double> all = rope.frequencies;
  all.insert(all.end(), local.frequencies.begin(), local.frequencies.end());
  const auto bytes = static_cast<std::int64_t>(all.size() * sizeof(double));
  memory_ = device.allocate(bytes, "RoPE frequencies");
  device.copy_from_host(memory_->data(), all.data(), bytes);
  const std::int64_t pairs = config.head_size / 2;
  const View frequencies(memory_->data(), DType::kF64, {pairs});
  views_.frequencies = frequencies;
  views_.attention_factor = rope.attention_factor;
  if (!config.local_rope) return;
  views_.local_frequencies = View(memory_->data() + frequencies.bytes(), DType::kF64, {pairs});
  views_.local_attention_factor = local.attention_factor;
}

}  // namespace longstride
