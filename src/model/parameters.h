// One block of device memory that holds a tensor for each parameter of a list: weights (each in the
// type of its spec), fp32 gradients, or optimizer state.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "device/device.h"
#include "model/parameter_specs.h"
#include "tensor/view.h"

namespace longstride {

// Which parameters of a list have memory in a set. The others are absent views. kGradients: those
// of kTrainable, and head_gradient().
enum class Holds : std::uint8_t { kAll, kTrainable, kGradients };

// Owns one block of device memory, initially zero; each parameter begins at a multiple of 256
// bytes. Movable. The device must outlive it. On the shapes device the views have no data.
//
// Not thread-safe: the thread that runs the step owns it.
class ParameterSet {
 public:
  // `what` names the block in the error if the device has too little memory ("weights",
  // "gradients").
  ParameterSet(Device& device, std::vector<ParameterSpec> specs, const std::string& what,
               Holds holds = Holds::kAll);
  // All parameters of a model in one type.
  ParameterSet(Device& device, const ModelConfig& config, DType dtype, const std::string& what);
  // F32, of the trainable parameters only.
  static ParameterSet gradients(Device& device, const std::vector<ParameterSpec>& specs);

  // Bytes of the block that the constructor would allocate.
  static std::int64_t bytes_needed(const std::vector<ParameterSpec>& specs,
                                   Holds holds = Holds::kAll);
  static std::int64_t gradient_bytes_needed(const std::vector<ParameterSpec>& specs);

  Device& device() const { return *device_; }
  // Length of the list, absent parameters included: sets made from one list share their indices.
  std::int64_t size() const { return static_cast<std::int64_t>(specs_.size()); }
  // Their dtypes are those of the views.
  const std::vector<ParameterSpec>& specs() const { return specs_; }
  // Parameter i, in the order of specs(); absent if the set does not hold it.
  View view(std::int64_t i) const;
  // The same views by role. The head of gradients that are summed apart is head_gradient().
  ModelParameters model() const;
  // The gradient of a tied embedding as head, where it is summed apart (ParameterSpec::head_apart);
  // in the stage that has the lookup alone, room for some rows of it, which another stage sends.
  // No parameter of its own: specs() does not list it. Absent if there is none.
  View head_gradient() const;
  // How many rows that is: about 16 MiB.
  static std::int64_t arriving_rows(const Shape& shape_VD);

  // The whole block, gaps between parameters included (they stay zero).
  std::byte* data() const { return memory_->data(); }
  std::int64_t bytes() const { return bytes_; }
  void zero();

 private:
  Device* device_;
  std::vector<ParameterSpec> specs_;
  std::vector<std::int64_t> offsets_;  // -1: not held
  std::int64_t head_offset_ = -1;      // of head_gradient()
  std::int64_t bytes_ = 0;
  std::unique_ptr<Memory> memory_;
};

// Normal(0, initializer_range) for matrices, ones for norms, zeros for biases, rounded to each
// parameter's dtype (drawn in F32 and then quantized, for a block format). A value depends only on
// the seed, the parameter's index and the element. `parameters` must hold all of them.
void initialize_random(ParameterSet& parameters, const ModelConfig& config, std::uint64_t seed);

// For benchmarks, many times faster: a matrix repeats a few million values.
void initialize_repeating(ParameterSet& parameters, const ModelConfig& config, std::uint64_t seed);

}  // namespace longstride
