// Low-rank adapters as parameters, and their folding into the weights they are added to
// (ops/adapter.h). The adapters themselves are F32 and trained; what the products read is derived
// from them: scale * B in the columns after each weight's own, and the stacked A of every input.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "model/parameters.h"
#include "model/projections.h"

namespace longstride {

// Adapters of one rank on some projections of some layers.
struct AdapterShape {
  std::int64_t rank = 0;
  std::vector<std::string> targets;  // names of projections
  std::vector<std::int64_t> layers;  // empty: all
  AdapterSettings settings;
};

// The name of an adapter's tensor, as PEFT has it; `which` is 'A' or 'B'.
std::string adapter_name(std::int64_t layer, const Projection& projection, char which);

// Freezes all parameters, gives the targets room for folded adapters, and appends the adapters and
// what is derived from them. `compute` is the type of activations. Throws Error for a target or a
// layer that the model does not have.
void add_adapters(std::vector<ParameterSpec>& specs, const AdapterShape& shape, DType compute);

// Makes what is derived from the adapters of `weights`, which holds everything. Call it when they
// were loaded or have changed. Does nothing if there are none.
void fold_adapters(ParameterSet& weights);

// Fills the weights that have room for folded adapters, a layer at a time: `fill` gets a set of
// plain ones, whose numbers in `weights` are `numbers`. Synchronizes the device.
void fill_folded(
    ParameterSet& weights,
    const std::function<void(ParameterSet& plain, std::span<const std::int64_t> numbers)>& fill);

// Uniform values within 1 / sqrt(inputs) for A, as PEFT has it; B stays zero.
void initialize_adapters(ParameterSet& weights, std::uint64_t seed);

}  // namespace longstride
