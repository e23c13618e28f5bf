// How the optimizer's state is cut where it is not on the device: all trainable parameters in a
// row, each from a multiple of cut_alignment() elements on, in slices of equal size, across
// parameters as it comes. A slice is one piece of memory, column after column, each from a multiple
// of 256 bytes on.
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
  std::int64_t elements = 0;  // gaps between parameters included
  std::vector<StatePiece> pieces;
};

struct StateSlices {
  StateColumns columns;
  std::vector<StateSlice> slices;         // of slice_bytes each, but the last
  std::vector<std::int64_t> first_slice;  // of each parameter; -1: it is frozen
  std::int64_t slice_bytes = 0;

  std::int64_t size() const { return std::ssize(slices); }
  const StateSlice& operator[](std::int64_t slice) const {
    return slices[static_cast<std::size_t>(slice)];
  }
  const StateColumn& column(std::int64_t c) const { return columns[static_cast<std::size_t>(c)]; }
  // Where a column begins in a slice; that of the column past the last is the slice's size.
  std::int64_t column_begin(std::int64_t slice, std::int64_t c) const;
  // Of a slice, and of the first `count` slices.
  std::int64_t bytes(std::int64_t slice) const { return column_begin(slice, std::ssize(columns)); }
  std::int64_t bytes_of_first(std::int64_t count) const {
    return count == 0 ? 0 : (count - 1) * slice_bytes + bytes(count - 1);
  }
  // Of a piece's values in its slice.
  std::int64_t offset(std::int64_t slice, std::int64_t c, const StatePiece& piece) const {
    return column_begin(slice, c) + column(c).bytes(piece.at);
  }
};

// `slice_elements` is a multiple of cut_alignment(), or 0: a sixteenth of all, up to 4M. There is a
// trainable parameter.
StateSlices cut_state(const std::vector<ParameterSpec>& specs, const StateColumns& columns,
                      std::int64_t slice_elements);

}  // namespace longstride
