// Optimizers on random models and gradients, for tests of the placement of their state.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tests/train/step_fixture.h"
#include "train/optimizer.h"

namespace longstride {

// Parameters from a few elements, of odd sizes, to some thousands.
inline ModelConfig optimizer_model() {
  Random random(5);
  ModelConfig config = random_config(random);
  config.layers = 2;
  config.windows = {0, 0};
  config.hidden_size = 24;
  config.ffn_size = 33;
  config.vocabulary = 211;
  config.qkv_bias = true;
  config.tied_embeddings = false;
  return config;
}

// A model's weights and gradients with their optimizer.
struct Trained {
  Trained(Device& device, const ModelConfig& config, DType dtype, const StateOptions& state,
          const OptimizerConfig& options = {})
      : Trained(device, config, parameter_specs(config, dtype), state, options) {}
  Trained(Device& device, const ModelConfig& config, const std::vector<ParameterSpec>& specs,
          const StateOptions& state, const OptimizerConfig& options = {})
      : weights(device, specs, "weights"), gradients(ParameterSet::gradients(device, specs)) {
    initialize_random(weights, config, 3);
    optimizer = std::make_unique<Optimizer>(weights, options, state, 17);
  }

  // Updates [first, first + count), with gradients that depend only on the step's number and are
  // multiplied by `scale`; 0: clipped.
  void update(std::int64_t first, std::int64_t count, double scale = 0) {
    for (std::int64_t step = first; step < first + count; ++step) {
      for (std::int64_t i = 0; i < gradients.size(); ++i) {
        if (!gradients.view(i).present()) continue;
        Random random(static_cast<std::uint64_t>(step), static_cast<std::uint64_t>(i));
        std::vector<float> values(static_cast<std::size_t>(gradients.view(i).elements()));
        for (float& value : values) value = static_cast<float>(random.normal());
        gradients.device().copy_from_host(gradients.view(i).data(), values.data(),
                                          gradients.view(i).bytes());
      }
      const double norm = optimizer->gradient_norm(gradients);
      EXPECT_GT(norm, 1);
      optimizer->update(gradients, 1e-2, scale > 0 ? scale : 1 / norm, step);
    }
  }

  // Weights of all parameters, then the state of the trainable ones, in a row without gaps.
  std::string bytes() {
    std::string all;
    for (std::int64_t i = 0; i < weights.size(); ++i) {
      const View view = weights.view(i);
      std::string part(static_cast<std::size_t>(view.bytes()), '\0');
      weights.device().copy_to_host(part.data(), view.data(), view.bytes());
      all += part;
    }
    for (const StateTensor& t : state_tensors(weights.specs(), optimizer->state().columns()))
      all += state_of(t.column, t.parameter);
    return all;
  }
  std::string state_of(std::int64_t column, std::int64_t parameter) {
    std::string all;
    optimizer->state().read(column, parameter, [&](std::span<const std::byte> piece) {
      all.append(reinterpret_cast<const char*>(piece.data()), piece.size());
    });
    return all;
  }

  ParameterSet weights, gradients;
  std::unique_ptr<Optimizer> optimizer;
};

// Every kind of optimizer but the default.
inline std::vector<OptimizerConfig> other_optimizers() {
  OptimizerConfig coded, rounded, both;
  coded.state = both.state = "8bit";
  rounded.masters = both.masters = false;
  return {coded, rounded, both};
}
inline std::string name_of(const OptimizerConfig& options) {
  return options.state + (options.masters ? "" : " without masters");
}

inline StateOptions on_host(std::int64_t slice_elements) {
  return {StatePlace::kHost, slice_elements};
}

// With `host_bytes` of host memory; 0: everything on disk.
inline StateOptions on_disk(const std::filesystem::path& directory, std::int64_t slice_elements,
                            std::int64_t host_bytes = 0) {
  return {StatePlace::kDisk, slice_elements, host_bytes, directory};
}

// About half of the slices in host memory, the others on disk.
inline StateOptions split(const std::filesystem::path& directory, std::int64_t slice_elements,
                          const ModelConfig& config, DType dtype,
                          const OptimizerConfig& optimizer = {}) {
  const std::vector<ParameterSpec> specs = parameter_specs(config, dtype);
  const std::int64_t all = Optimizer::bytes_needed(specs, optimizer, on_host(slice_elements)).host;
  StateOptions options = on_disk(directory, slice_elements);
  const std::int64_t buffers = Optimizer::bytes_needed(specs, optimizer, options).host;
  options.host_bytes = std::min(buffers + all / 2, all - 1);
  return options;
}

}  // namespace longstride
