// Low-rank adapters as parameters, and their folding into the weights they are added to
// (ops/adapter.h). The adapters themselves are F32 and trained; what the products read is derived
// from them: scale * B in the columns after each weight's own, and the stacked A of every input.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "model/adapter_directory.h"
#include "model/parameters.h"
#include "model/projections.h"

namespace longstride {

// Freezes all parameters but those that `adapter` trains whole, gives its targets room for folded
// adapters, and appends the adapters and what is derived from them. `compute` is the type of
// activations. A tied head gets its own parameter if the adapter has it apart from the embedding.
// Throws Error if a module to train whole is not there.
void add_adapters(std::vector<ParameterSpec>& specs, const AdapterConfig& adapter,
                  const ModelConfig& config, DType compute);

// Makes what is derived from the adapters of `weights`, which holds everything. Call it when they
// were loaded or have changed. Does nothing if there are none.
void fold_adapters(ParameterSet& weights);

// Loads the adapters and the modules beside them, and folds them in.
void load_adapters(const AdapterDirectory& directory, ParameterSet& weights);

// Fills the weights that have room for folded adapters, a layer at a time: `fill` gets a set of
// plain ones, whose numbers in `weights` are `numbers`. Synchronizes the device.
void fill_folded(
    ParameterSet& weights,
    const std::function<void(ParameterSet& plain, std::span<const std::int64_t> numbers)>& fill);

// Uniform values within 1 / sqrt(inputs) for A, as PEFT has it; B stays zero.
void initialize_adapters(ParameterSet& weights, std::uint64_t seed);

}  // namespace longstride
