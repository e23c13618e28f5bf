#include "model/stage_parts.h"

#include "base/error.h"

namespace longstride {
namespace {

template <class T>
std::vector<T> part(const std::vector<T>& all, std::int64_t first, std::int64_t end) {
  if (all.empty()) return {};
  return {all.begin() + first, all.begin() + end};
}

bool belongs(const ParameterSpec& spec, const Stage& stage, std::int64_t end) {
  const ParameterPlace& place = spec.place;
  if (place.layer >= 0) return place.layer >= stage.first_layer && place.layer < end;
  return place.at_top == &ModelParameters::embedding ? !stage.receives : !stage.sends;
}

// Whether it belongs to a stage before the one that begins with this layer.
bool is_below(const ParameterSpec& spec, std::int64_t first) {
  const ParameterPlace& place = spec.place;
  if (place.layer >= 0) return place.layer < first;
  return place.at_top == &ModelParameters::embedding && first > 0;
}

}  // namespace

StageParts stage_parts(const ModelConfig& config, const std::vector<ParameterSpec>& parameters,
                       const NumericsRecord& numerics, std::int64_t first, std::int64_t end) {
  LS_CHECK(first >= 0 && first < end && end <= config.layers, "layers {} to {} of {}", first, end,
           config.layers);
  StageParts parts{{first, first > 0, end < config.layers, false}, config, {}, numerics};
  parts.config.layers = end - first;
  parts.config.windows = part(config.windows, first, end);
  parts.config.local_layers = part(config.local_layers, first, end);
  parts.numerics.sparse.budgets = part(numerics.sparse.budgets, first, end);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const ParameterSpec& spec = parameters[i];
    LS_CHECK(!spec.place.is_head_too || end - first == config.layers,
             "{} is the head too, and layers {} to {} are not all", spec.name, first, end);
    if (is_below(spec, first) && spec.trainable) parts.stage.trains_below = true;
    if (!belongs(spec, parts.stage, end)) continue;
    parts.parameters.push_back(spec);
    parts.parameters.back().number = static_cast<std::int64_t>(i);
    if (spec.place.layer >= 0) parts.parameters.back().place.layer -= first;
  }
  return parts;
}

}  // namespace longstride
