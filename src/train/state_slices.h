// How the optimizer's state is cut where it is not on the device: all parameters in a row, each
// from a multiple of 64 elements on, in slices of equal size, across parameters as it comes. A
// slice is one piece of memory, [m][v][master].
#pragma once

#include <cstdint>
#include <vector>

#include "model/parameters.h"

namespace longstride {

// Elements of one parameter in a slice.
struct StatePiece {
  std::int64_t parameter = 0, first = 0, elements = 0;
  std::int64_t at = 0;  // in the slice
};

struct StateSlice {
  std::int64_t elements = 0;  // gaps between parameters included
  std::vector<StatePiece> pieces;
};

struct StateSlices {
  static constexpr std::int64_t kElement = size_of(DType::kF32);

  std::vector<StateSlice> slices;         // of slice_bytes each, but the last
  std::vector<std::int64_t> first_slice;  // of each parameter
  std::int64_t parts = 0;                 // 2, or 3 with masters
  std::int64_t slice_bytes = 0;

  std::int64_t size() const { return std::ssize(slices); }
  const StateSlice& operator[](std::int64_t slice) const {
    return slices[static_cast<std::size_t>(slice)];
  }
  // Of one part of a slice, of all, and of the first `count` slices.
  std::int64_t part_bytes(std::int64_t slice) const { return (*this)[slice].elements * kElement; }
  std::int64_t bytes(std::int64_t slice) const { return parts * part_bytes(slice); }
  std::int64_t bytes_of_first(std::int64_t count) const {
    return count == 0 ? 0 : (count - 1) * slice_bytes + bytes(count - 1);
  }
  // Of a piece's part in its slice.
  std::int64_t offset(std::int64_t slice, std::int64_t part, const StatePiece& piece) const {
    return part * part_bytes(slice) + piece.at * kElement;
  }
};

// `slice_elements` is a multiple of 64, or 0: a sixteenth of all, up to 4M.
StateSlices cut_state(const ModelConfig& config, bool masters, std::int64_t slice_elements);

}  // namespace longstride
