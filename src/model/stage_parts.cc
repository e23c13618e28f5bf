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

// A tied embedding where stages cut the model: the lookup, or the copy that is the head.
ParameterSpec tied_part(ParameterSpec spec, TiedPart part) {
  spec.tied_part = part;
  spec.place.is_head_too = false;
  if (part == TiedPart::kHeadCopy) {
    spec.place.at_top = &ModelParameters::head;
    spec.trainable = false;
  }
  return spec;
}

void check_apart(const ParameterSpec& spec) {
  if (spec.head_apart || !spec.trainable) return;
  throw Error(
      fmt::format("{} is the head too, and this run sums both gradients together, as runs did "
                  "before stages: it cannot be cut into stages",
                  spec.name),
      "go on in one stage, or begin a new run with its weights");
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
  if (!numerics.layer_pages.empty())
    parts.numerics.set_pages(part(numerics.layer_pages, first, end));
  const bool cut = end - first < config.layers;
  std::vector<ParameterSpec> copies;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    ParameterSpec spec = parameters[i];
    spec.number = static_cast<std::int64_t>(i);
    if (is_below(spec, first) && spec.trainable) parts.stage.trains_below = true;
    if (cut && spec.place.is_head_too) {
      check_apart(spec);
      if (!parts.stage.receives) parts.parameters.push_back(tied_part(spec, TiedPart::kLookup));
      if (!parts.stage.sends) copies.push_back(tied_part(spec, TiedPart::kHeadCopy));
      continue;
    }
    if (!belongs(spec, parts.stage, end)) continue;
    parts.parameters.push_back(spec);
    if (spec.place.layer >= 0) parts.parameters.back().place.layer -= first;
  }
  // Last, so that the others have the order of the model without a gap.
  parts.parameters.insert(parts.parameters.end(), copies.begin(), copies.end());
  return parts;
}

}  // namespace longstride
