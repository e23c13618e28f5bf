// Merges an adapter into its model.
#pragma once

#include <filesystem>
#include <span>
#include <vector>

#include "model/adapter_directory.h"
#include "model/model_directory.h"

namespace longstride {

// The merged model: its config, and its tensors, computed as they are read: W + scale*B*A in fp32,
// rounded once to the type of W; tensors of also_train replace the model's, in its types. A model
// that ties head and embedding stays tied unless the adapter trained one apart from the other: then
// both are stored, as PEFT's merge_and_unload does it.
//
// `host` computes the products and must share the host's memory. It and both directories must
// outlive the result. `weights.read` holds a few rows of one tensor at a time, beside
// its A and B, and throws Error that names a tensor which holds, or would hold, a value that is not
// finite. One thread at a time may call it.
struct MergedModel {
  ModelConfig config;
  TensorsToWrite weights;
  std::int64_t bytes() const;  // of the tensors
};
MergedModel merge(const ModelDirectory& model, const AdapterDirectory& adapter, Device& host);

}  // namespace longstride
