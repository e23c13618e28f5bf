// An optimizer's state as a set of columns: each has one value per element of a parameter, or one
// per block of elements (a scale), for all trainable parameters or for those of some sizes.
// Placement, slices, checkpoints and byte counts follow from the columns; only the optimizer knows
// what they mean.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "model/parameter_specs.h"
#include "model/safetensors_writer.h"

namespace longstride {

struct StateColumn {
  std::string name;  // of its tensors in a checkpoint: "name.parameter", unique for a parameter
  std::string what;  // for messages: "first moments"
  DType dtype = DType::kF32;
  std::int64_t block = 1;  // elements of one parameter that share a value
  // Parameters of [from, below) elements have it.
  std::int64_t from = 0, below = std::numeric_limits<std::int64_t>::max();

  bool has(const ParameterSpec& spec) const {
    const std::int64_t elements = spec.shape.elements();
    return spec.trainable && elements >= from && elements < below;
  }
  // Values for this many elements of a parameter, from the beginning of a block on.
  std::int64_t values(std::int64_t elements) const { return (elements + block - 1) / block; }
  std::int64_t bytes(std::int64_t elements) const { return values(elements) * size_of(dtype); }
  // The parameter's shape if there is one value per element.
  Shape shape(const ParameterSpec& spec) const {
    return block == 1 ? spec.shape : Shape({values(spec.shape.elements())});
  }
};
using StateColumns = std::vector<StateColumn>;

// A parameter's elements begin and are cut at multiples of this: blocks stay whole, and in every
// column the first value is aligned to 16 bytes. At least 64, which are 256 bytes of fp32.
std::int64_t cut_alignment(const StateColumns& columns);

// The tensors of one column: parameters that do not have it are marked as frozen.
std::vector<ParameterSpec> column_specs(const std::vector<ParameterSpec>& specs,
                                        const StateColumn& column);

// A tensor of the state in a checkpoint.
struct StateTensor {
  TensorToWrite tensor;
  std::int64_t column = 0, parameter = 0;
  std::int64_t bytes() const { return tensor.shape.elements() * size_of(tensor.dtype); }
};
// Column by column, in the order of the parameters that have it.
std::vector<StateTensor> state_tensors(const std::vector<ParameterSpec>& specs,
                                       const StateColumns& columns);

}  // namespace longstride
