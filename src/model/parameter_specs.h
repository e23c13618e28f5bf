// Specifications of a model's parameters: name, shape, type, whether they are trained, and where
// each belongs. Everything that has one tensor per parameter (weights, gradients, the optimizer's
// state, checkpoints) is made from a list of these, so a different list is enough to train only a
// part of the model.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/config.h"
#include "tensor/view.h"

namespace longstride {

// Projections are [out, in], as in the files. A tensor that the model lacks, or whose gradient is
// not needed, is an absent view (present() == false).
struct LayerParameters {
  View input_norm;       // [D]
  View q, q_bias;        // [H*C, D], [H*C]
  View k, k_bias;        // [K*C, D], [K*C]
  View v, v_bias;        // [K*C, D], [K*C]
  View q_norm, k_norm;   // [C]
  View o, o_bias;        // [D, H*C], [D]
  View post_norm;        // [D]: before the feed-forward part
  View gate, gate_bias;  // [F, D], [F]
  View up, up_bias;      // [F, D], [F]
  View down, down_bias;  // [D, F], [D]
};

struct ModelParameters {
  View embedding;  // [V, D]
  std::vector<LayerParameters> layers;
  View final_norm;  // [D]
  View head;        // [V, D]; the embedding itself if they are tied
};

// A parameter's place in ModelParameters: in a layer, or at the top if `layer` is -1.
struct ParameterPlace {
  std::int64_t layer = -1;
  View ModelParameters::*at_top = nullptr;
  View LayerParameters::*in_layer = nullptr;
  bool is_head_too = false;  // a tied embedding
};

// Rows [first, first + shape[0]) of a tensor that has `of` rows in total.
struct RowShard {
  std::int64_t first = 0, of = 0;
};

struct ParameterSpec {
  std::string name;                         // Hugging Face's
  Shape shape;                              // of the part that this process holds
  DType dtype = DType::kF32;                // of the weight
  bool decay = true;                        // false for norms and biases
  double rate = 1;                          // of the learning rate, for this parameter
  std::optional<double> weight_decay = {};  // in place of the optimizer's
  // False: frozen, without gradient, optimizer state or update.
  bool trainable = true;
  std::optional<std::string> adapter = {};  // added to this parameter; not supported yet
  std::optional<RowShard> shard = {};       // absent: the whole; shards are not supported yet
  ParameterPlace place = {};
};

// All parameters of a model in one type, all trainable. In the order of the forward pass:
// embedding, layers, final norm, head (absent if tied). Checkpoints and random initialization rely
// on the order.
std::vector<ParameterSpec> parameter_specs(const ModelConfig& config, DType dtype = DType::kF32);

// The same parameters in another type: gradients, masters, moments.
std::vector<ParameterSpec> with_dtype(std::vector<ParameterSpec> specs, DType dtype);

}  // namespace longstride
