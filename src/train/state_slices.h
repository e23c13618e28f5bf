// How offloaded optimizer state is cut: all trainable parameters are concatenated, each starting at
// a multiple of cut_alignment() elements, and cut into slices of equal size, regardless of
// parameter boundaries. A slice is contiguous memory, column after column, each starting at a
// multiple of 256 bytes.
#pragma once

#include <cstdint>
#include <vector>

#include "train/state_columns.h"

namespace longstride {

// Elements of one parameter in a slice.
struct StatePiece {
  std::int64_t parameter = 0, first = 0, elements = 0;
  std::int64_t at = 0;  // in the slice
};

struct StateSlice {
  std::int64_t elements = 0;  // including gaps between parameters
  std::vector<StatePiece> pieces;
};

struct StateSlices {
  StateColumns columns;
  std::vector<StateSlice> slices;         // of slice_bytes each, except the last
  std::vector<std::int64_t> first_slice;  // of each parameter; -1: it is frozen
  std::int64_t slice_bytes = 0;

  std::int64_t size() const { return std::ssize(slices); }
  const StateSlice& operator[](std::int64_t slice) const {
    return slices[static_cast<std::size_t>(slice)];
  }
  const StateColumn& column(std::int64_t c) const { return columns[static_cast<std::size_t>(c)]; }
  // Offset of a column in a slice; one past the last column gives the slice's size.
  std::int64_t column_begin(std::int64_t slice, std::int64_t c) const;
  // Of a slice, and of the first `count` slices.
  std::int64_t bytes(std::int64_t slice) const { return column_begin(slice, std::ssize(columns)); }
  std::int64_t bytes_of_first(std::int64_t count) const {
    return count == 0 ? 0 : (count - 1) * slice_bytes + bytes(count - 1);
  }
  // Offset of a piece's values in its slice.
  std::int64_t offset(std::int64_t slice, std::int64_t c, const StatePiece& piece) const {
    return column_begin(slice, c) + column(c).bytes(piece.at);
  }
};

// `slice_elements` is a multiple of cut_alignment(), or 0: a sixteenth of all, up to 4M. Requires a
// trainable parameter.
StateSlices cut_state(const std::vector<ParameterSpec>& specs, const StateColumns& columns,
                      std::int64_t slice_elements);

}  // namespace longstride
