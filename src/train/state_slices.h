// How offloaded optimizer state is cut: all trainable parameters are concatenated, each starting at
// a multiple of cut_alignment() elements, and cut into slices of equally many, regardless of
// parameter boundaries. A slice is contiguous memory, column after column, each starting at a
// multiple of 256 bytes; a column has room for the parameters that have it.
#pragma once

#include <cstdint>
#include <vector>

#include "train/state_columns.h"

namespace longstride {

// Elements of one parameter in a slice.
struct StatePiece {
  std::int64_t parameter = 0, first = 0, elements = 0;
  // Of its values in each column, in bytes from the column's beginning; -1: it has none.
  std::vector<std::int64_t> at;
  bool has(std::int64_t c) const { return at[static_cast<std::size_t>(c)] >= 0; }
};

struct StateSlice {
  std::int64_t elements = 0;               // including gaps between parameters
  std::vector<std::int64_t> column_bytes;  // including gaps
  std::vector<StatePiece> pieces;
};

struct StateSlices {
  StateColumns columns;
  std::vector<StateSlice> slices;
  std::vector<std::int64_t> first_slice;  // of each parameter; -1: it is frozen
  std::int64_t slice_bytes = 0;           // of the largest slice

  std::int64_t size() const { return std::ssize(slices); }
  const StateSlice& operator[](std::int64_t slice) const {
    return slices[static_cast<std::size_t>(slice)];
  }
  const StateColumn& column(std::int64_t c) const { return columns[static_cast<std::size_t>(c)]; }
  // Offset of a column in a slice; one past the last column gives the slice's size.
  std::int64_t column_begin(std::int64_t slice, std::int64_t c) const;
  // Of a slice, and of memory for the first `count`: slice_bytes each, but the very last is cut.
  std::int64_t bytes(std::int64_t slice) const { return column_begin(slice, std::ssize(columns)); }
  std::int64_t bytes_of_first(std::int64_t count) const {
    return count * slice_bytes - (count == size() ? slice_bytes - bytes(count - 1) : 0);
  }
  // Offset of a piece's values in its slice, in a column that it has.
  std::int64_t offset(std::int64_t slice, std::int64_t c, const StatePiece& piece) const {
    return column_begin(slice, c) + piece.at[static_cast<std::size_t>(c)];
  }
};

// `slice_elements` is a multiple of cut_alignment(), or 0: a sixteenth of all, up to 4M. Requires a
// trainable parameter.
StateSlices cut_state(const std::vector<ParameterSpec>& specs, const StateColumns& columns,
                      std::int64_t slice_elements);

}  // namespace longstride
