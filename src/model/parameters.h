// The parameters of a model: names, shapes and one block of device memory that holds them all. The
// same class serves weights (in the dtypes of their files), fp32 gradients, masters and optimizer
// moments: everything that has one tensor per parameter.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "device/device.h"
#include "model/config.h"
#include "tensor/view.h"

namespace longstride {

struct ParameterSpec {
  std::string name;  // Hugging Face's
  Shape shape;
  bool decay = true;  // false for norms and biases
};

// In the order of the forward pass: embedding, layers, final norm, head (absent where tied). The
// order is part of what a checkpoint and random initialization rely on.
std::vector<ParameterSpec> parameter_specs(const ModelConfig& config);

// Projections are [out, in], as in the files. A tensor the model has not is an absent view
// (present() == false).
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
  View head;        // [V, D]; the embedding itself where they are tied
};

// Movable. Owns one block of device memory, zeroed at first; each parameter begins at a multiple of
// 256 bytes. The device must outlive it. On the shapes device the views have no data.
class ParameterSet {
 public:
  // `what` names the block in the error of a device that has not that much memory ("weights",
  // "gradients").
  ParameterSet(Device& device, const ModelConfig& config, std::vector<DType> dtypes,
               const std::string& what);
  ParameterSet(Device& device, const ModelConfig& config, DType dtype, const std::string& what);

  // Bytes of the block that the constructor would allocate.
  static std::int64_t bytes_needed(const ModelConfig& config, const std::vector<DType>& dtypes);
  static std::int64_t bytes_needed(const ModelConfig& config, DType dtype);

  Device& device() const { return *device_; }
  std::int64_t size() const { return static_cast<std::int64_t>(specs_.size()); }
  const std::vector<ParameterSpec>& specs() const { return specs_; }
  const std::vector<DType>& dtypes() const { return dtypes_; }
  // Parameter i, in the order of specs().
  View view(std::int64_t i) const;
  // The same views by role.
  ModelParameters model() const;

  // The whole block, gaps between parameters included (they stay zero).
  std::byte* data() const { return memory_->data(); }
  std::int64_t bytes() const { return bytes_; }
  void zero();

 private:
  Device* device_;
  ModelConfig config_;
  std::vector<ParameterSpec> specs_;
  std::vector<DType> dtypes_;
  std::vector<std::int64_t> offsets_;
  std::int64_t bytes_ = 0;
  std::unique_ptr<Memory> memory_;
};

// Normal(0, initializer_range) for matrices, ones for norms, zeros for biases, rounded to each
// parameter's dtype. A value depends on the seed, the parameter's index and the element alone.
void initialize_random(ParameterSet& parameters, const ModelConfig& config, std::uint64_t seed);

// The same for benchmarks, many times faster: a matrix repeats a few million values over and over.
void initialize_repeating(ParameterSet& parameters, const ModelConfig& config, std::uint64_t seed);

}  // namespace longstride
