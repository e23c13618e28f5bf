// Which parameters of a model are trained.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/parameter_specs.h"

namespace longstride {

// Marks as trainable the parameters whose name matches one of `train` (empty: all of them) and none
// of `freeze`. Both are globs over Hugging Face names, in which * also matches dots. Throws Error
// if one matches nothing, or if nothing is left to train; `train_key` and `freeze_key` name them
// there.
void choose_trainable(std::vector<ParameterSpec>& specs, const std::vector<std::string>& train,
                      const std::vector<std::string>& freeze, const std::string& train_key,
                      const std::string& freeze_key);

// Whether a name matches a glob.
bool matches(const std::string& glob, const std::string& name);
// Throws Error if no parameter matches: a typing error. `key` names the setting.
void check_glob(const std::string& glob, const std::vector<ParameterSpec>& specs,
                const std::string& key);

// What the backward pass has to compute.
struct TrainedParts {
  // No layer below needs a backward pass: 0 if the embedding is trained, the number of layers if
  // only the final norm or the head is.
  std::int64_t first_layer = 0;
  // Share of each layer's matrix elements that are trained, and whether the head's are. An empty
  // list: all of all layers.
  std::vector<double> layers = {};
  bool head = true;

  double of_layer(std::int64_t layer) const {
    return layers.empty() ? 1.0 : layers[static_cast<std::size_t>(layer)];
  }
  bool operator==(const TrainedParts&) const = default;
};
TrainedParts trained_parts(const std::vector<ParameterSpec>& specs, std::int64_t layers);

}  // namespace longstride
