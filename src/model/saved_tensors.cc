#include "model/saved_tensors.h"

#include <algorithm>

namespace longstride {

bool has_adapters(const std::vector<ParameterSpec>& specs) {
  return std::ranges::any_of(specs,
                             [](const ParameterSpec& spec) { return spec.adapter.has_value(); });
}

std::vector<SavedTensor> saved_tensors(const std::vector<ParameterSpec>& specs) {
  const bool adapters = has_adapters(specs);
  const std::string prefix = adapters ? "base_model.model." : "";
  std::vector<SavedTensor> saved;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const ParameterSpec& spec = specs[i];
    if (spec.derived || (adapters && !spec.trainable)) continue;
    saved.push_back({prefix + spec.name, static_cast<std::int64_t>(i)});
    // PEFT stores both of them where it keeps them tied.
    if (adapters && spec.place.is_head_too)
      saved.push_back({prefix + "lm_head.weight", static_cast<std::int64_t>(i)});
  }
  return saved;
}

std::int64_t saved_bytes(const std::vector<ParameterSpec>& specs) {
  std::int64_t bytes = 0;
  for (const SavedTensor& tensor : saved_tensors(specs)) {
    const ParameterSpec& spec = specs[static_cast<std::size_t>(tensor.parameter)];
    bytes += spec.shape.elements() * size_of(spec.dtype);
  }
  return bytes;
}

}  // namespace longstride
