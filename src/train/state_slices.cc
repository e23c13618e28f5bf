#include "train/state_slices.h"

#include <algorithm>

#include "base/error.h"

namespace longstride {
namespace {

constexpr std::int64_t kAlignment = 64;  // elements: 256 bytes of fp32
constexpr std::int64_t kLargestSlice = std::int64_t{4} << 20, kFewestSlices = 16;

std::int64_t aligned(std::int64_t elements) {
  return (elements + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

StateSlices cut_state(const ModelConfig& config, bool masters, std::int64_t slice_elements) {
  const std::vector<ParameterSpec> specs = parameter_specs(config);
  if (slice_elements == 0) {
    std::int64_t all = 0;
    for (const ParameterSpec& spec : specs) all += aligned(spec.shape.elements());
    slice_elements = std::min(kLargestSlice, aligned((all + kFewestSlices - 1) / kFewestSlices));
  }
  LS_CHECK(slice_elements > 0 && slice_elements % kAlignment == 0, "slices of {} elements",
           slice_elements);
  StateSlices cut;
  cut.parts = masters ? 3 : 2;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const std::int64_t elements = specs[i].shape.elements();
    for (std::int64_t first = 0; first < elements;) {
      if (cut.slices.empty() || cut.slices.back().elements == slice_elements)
        cut.slices.emplace_back();
      StateSlice& slice = cut.slices.back();
      if (first == 0) cut.first_slice.push_back(cut.size() - 1);
      const std::int64_t n = std::min(elements - first, slice_elements - slice.elements);
      slice.pieces.push_back({static_cast<std::int64_t>(i), first, n, slice.elements});
      slice.elements += aligned(n);
      first += n;
    }
  }
  cut.slice_bytes = cut.bytes(0);
  return cut;
}

}  // namespace longstride
