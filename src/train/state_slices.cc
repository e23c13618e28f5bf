#include "train/state_slices.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace longstride {
namespace {

constexpr std::int64_t kColumnAlignment = 256;  // bytes
constexpr std::int64_t kLargestSlice = std::int64_t{4} << 20, kFewestSlices = 16;

std::int64_t rounded_up(std::int64_t n, std::int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

std::int64_t chosen_slice(const std::vector<ParameterSpec>& specs, std::int64_t alignment) {
  std::int64_t all = 0;
  for (const ParameterSpec& spec : specs)
    if (spec.trainable) all += rounded_up(spec.shape.elements(), alignment);
  return std::min(kLargestSlice / alignment * alignment,
                  rounded_up((all + kFewestSlices - 1) / kFewestSlices, alignment));
}

}  // namespace

std::int64_t StateSlices::column_begin(std::int64_t slice, std::int64_t c) const {
  std::int64_t begin = 0;
  for (std::int64_t before = 0; before < c; ++before)
    begin +=
        rounded_up((*this)[slice].column_bytes[static_cast<std::size_t>(before)], kColumnAlignment);
  return begin;
}

StateSlices cut_state(const std::vector<ParameterSpec>& specs, const StateColumns& columns,
                      std::int64_t slice_elements) {
  const std::int64_t alignment = cut_alignment(columns);
  if (slice_elements == 0) slice_elements = chosen_slice(specs, alignment);
  LS_CHECK(slice_elements > 0 && slice_elements % alignment == 0, "slices of {} elements",
           slice_elements);
  StateSlices cut;
  cut.columns = columns;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const std::int64_t elements = specs[i].trainable ? specs[i].shape.elements() : 0;
    cut.first_slice.push_back(-1);
    for (std::int64_t first = 0; first < elements;) {
      if (cut.slices.empty() || cut.slices.back().elements == slice_elements)
        cut.slices.push_back({.column_bytes = std::vector<std::int64_t>(columns.size())});
      StateSlice& slice = cut.slices.back();
      if (first == 0) cut.first_slice.back() = cut.size() - 1;
      const std::int64_t n = std::min(elements - first, slice_elements - slice.elements);
      StatePiece piece{
          .parameter = static_cast<std::int64_t>(i), .first = first, .elements = n, .at = {}};
      for (std::size_t c = 0; c < columns.size(); ++c) {
        const bool has = columns[c].has(specs[i]);
        piece.at.push_back(has ? slice.column_bytes[c] : -1);
        if (has) slice.column_bytes[c] += columns[c].bytes(rounded_up(n, alignment));
      }
      slice.pieces.push_back(std::move(piece));
      slice.elements += rounded_up(n, alignment);
      first += n;
    }
  }
  LS_CHECK(!cut.slices.empty(), "none of {} parameters is trainable", specs.size());
  for (std::int64_t s = 0; s < cut.size(); ++s)
    cut.slice_bytes = std::max(cut.slice_bytes, cut.bytes(s));
  return cut;
}

}  // namespace longstride
