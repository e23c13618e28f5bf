#include "train/state_columns.h"

#include <algorithm>

#include "base/error.h"

namespace longstride {

std::int64_t cut_alignment(const StateColumns& columns) {
  constexpr std::int64_t kElements = 64, kBytes = 16;
  std::int64_t alignment = kElements;
  for (const StateColumn& column : columns)
    alignment = std::max(alignment, column.block * (kBytes / size_of(column.dtype)));
  for (const StateColumn& column : columns)
    LS_CHECK(column.block > 0 && alignment % column.block == 0,
             "{}: blocks of {} elements do not divide {}", column.name, column.block, alignment);
  return alignment;
}

std::vector<ParameterSpec> column_specs(const std::vector<ParameterSpec>& specs,
                                        const StateColumn& column) {
  std::vector<ParameterSpec> of = with_dtype(specs, column.dtype);
  for (ParameterSpec& spec : of) {
    spec.trainable = column.has(spec);
    spec.shape = column.shape(spec);
    spec.follows = false;  // each begins aligned
  }
  return of;
}

std::vector<StateTensor> state_tensors(const std::vector<ParameterSpec>& specs,
                                       const StateColumns& columns) {
  std::vector<StateTensor> tensors;
  for (std::size_t c = 0; c < columns.size(); ++c)
    for (std::size_t i = 0; i < specs.size(); ++i)
      if (columns[c].has(specs[i]))
        tensors.push_back({.tensor = {fmt::format("{}.{}", columns[c].name, specs[i].name),
                                      columns[c].dtype, columns[c].shape(specs[i])},
                           .column = static_cast<std::int64_t>(c),
                           .parameter = static_cast<std::int64_t>(i)});
  return tensors;
}

}  // namespace longstride
