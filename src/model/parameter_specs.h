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
  View input_norm;       // [D]: before attention
  View q, q_bias;        // [H*C, D], [H*C]
  View k, k_bias;        // [K*C, D], [K*C]
  View v, v_bias;        // [K*C, D], [K*C]
  View q_norm, k_norm;   // [C], or [H*C] and [K*C]
  View o, o_bias;        // [D, H*C], [D]
  View attention_norm;   // [D]: of what attention adds
  View post_norm;        // [D]: before the feed-forward part
  View gate, gate_bias;  // [F, D], [F]
  View up, up_bias;      // [F, D], [F]
  View down, down_bias;  // [D, F], [D]
  View ffn_norm;         // [D]: of what the feed-forward part adds

  // Low-rank adapters of the projections: A [r, inputs] and B [outputs, r], F32.
  View q_a, q_b, k_a, k_b, v_a, v_b, o_a, o_b, gate_a, gate_b, up_a, up_b, down_a, down_b;
  // Derived from them (model/fold_adapters.h): A of the projections that share an input, stacked.
  // The weights of these projections then have columns for scale * B after their own.
  View attention_a, output_a, feed_forward_a, product_a;
  // Quantized weights have no such columns: theirs are tensors of their own.
  View q_tail, k_tail, v_tail, o_tail, gate_tail, up_tail, down_tail;
  double adapter_scale = 1, adapter_dropout = 0;
};

struct ModelParameters {
  View embedding;  // [V, D]
  std::vector<LayerParameters> layers;
  View final_norm;  // [D]
  View head;        // [V, D]; the embedding itself if they are tied
};

// What all adapters of a model share.
struct AdapterSettings {
  double scale = 1;    // of B A
  double dropout = 0;  // of the input of A
  bool operator==(const AdapterSettings&) const = default;
};

// A parameter's place in ModelParameters: in a layer, or at the top if `layer` is -1.
struct ParameterPlace {
  std::int64_t layer = -1;
  View ModelParameters::*at_top = nullptr;
  View LayerParameters::*in_layer = nullptr;
  bool is_head_too = false;  // a tied embedding
};

// What a stage of a pipeline has of a tied embedding. The first one trains and saves it; the last
// one has a copy, its head, which it loads but neither updates nor saves.
enum class TiedPart : std::uint8_t { kWhole, kLookup, kHeadCopy };

// Rows [first, first + shape[0]) of a tensor of the files that has `of` rows in total: families
// whose files hold several projections in one tensor (model/file_tensors.h).
struct FilePart {
  std::string tensor;
  std::int64_t first = 0, of = 0;
};

struct ParameterSpec {
  std::string name;  // unique; Hugging Face's, if the whole tensor is meant
  Shape shape;
  DType dtype = DType::kF32;                // of the weight
  bool decay = true;                        // false for norms and biases
  double rate = 1;                          // of the learning rate, for this parameter
  std::optional<double> weight_decay = {};  // in place of the optimizer's
  // False: frozen, without gradient, optimizer state or update.
  bool trainable = true;
  std::optional<AdapterSettings> adapter = {};  // of A and B of an adapter
  std::int64_t tail = 0;  // columns after those of `shape`, for folded adapters; zero at first
  bool follows = false;   // in memory directly after the parameter before it
  bool derived = false;   // made from other parameters; neither loaded nor saved
  std::optional<FilePart> part = {};  // absent: the file's tensor of that name, whole
  std::string source = {};  // the file's tensor that it begins as, if the model has none of its own
  ParameterPlace place = {};
  // In the list of the whole model, where this one is in the list of a stage; -1: the same.
  std::int64_t number = -1;
  // A tied embedding whose gradient as head is summed apart from that of the lookup, and added to
  // it once per step (model/tied_head.h).
  bool head_apart = false;
  TiedPart tied_part = TiedPart::kWhole;

  // The name of its tensor in the files: what users see, and globs match.
  const std::string& file_name() const { return part ? part->tensor : name; }
  // In memory.
  Shape stored_shape() const {
    Shape stored = shape;
    if (tail > 0) stored.set(1, shape[1] + tail);
    return stored;
  }
};

// Of parameter `i` of a list, in the list of the whole model: random numbers depend on it.
inline std::int64_t number_of(const std::vector<ParameterSpec>& specs, std::int64_t i) {
  const std::int64_t number = specs[static_cast<std::size_t>(i)].number;
  return number >= 0 ? number : i;
}

// All parameters of a model in one type, all trainable. In the order of the forward pass:
// embedding, layers, final norm, head (absent if tied). Checkpoints and random initialization rely
// on the order.
std::vector<ParameterSpec> parameter_specs(const ModelConfig& config, DType dtype = DType::kF32);

// The same parameters in another type: gradients, masters, moments.
std::vector<ParameterSpec> with_dtype(std::vector<ParameterSpec> specs, DType dtype);

}  // namespace longstride
