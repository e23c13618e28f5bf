#include "model/tied_head.h"

#include <algorithm>

#include "ops/elementwise.h"

namespace longstride {

void sum_head_apart(std::vector<ParameterSpec>& specs) {
  for (ParameterSpec& spec : specs) spec.head_apart = spec.place.is_head_too && spec.trainable;
}

bool sums_head_apart(const std::vector<ParameterSpec>& specs) {
  return std::ranges::any_of(specs, &ParameterSpec::head_apart);
}

void add_head_gradient(ParameterSet& gradients) {
  const View head_VD = gradients.head_gradient();
  if (!head_VD.present()) return;
  for (std::int64_t i = 0; i < gradients.size(); ++i) {
    const ParameterSpec& spec = gradients.specs()[static_cast<std::size_t>(i)];
    if (!spec.head_apart || spec.tied_part != TiedPart::kWhole) continue;
    const View embedding_VD = gradients.view(i);
    Stream& stream = gradients.device().stream();
    ops::add(stream, {.a = embedding_VD, .b = head_VD, .y = embedding_VD});
    ops::zero(stream, {head_VD});
  }
}

}  // namespace longstride
