#include "model/trainable.h"

#include <fnmatch.h>

#include <algorithm>

#include "base/error.h"

namespace longstride {
namespace {

bool matches_any(const std::vector<std::string>& globs, const std::string& name) {
  return std::ranges::any_of(globs, [&](const std::string& glob) { return matches(glob, name); });
}

}  // namespace

void check_glob(const std::string& glob, const std::vector<ParameterSpec>& specs,
                const std::string& key) {
  if (std::ranges::none_of(
          specs, [&](const ParameterSpec& spec) { return matches(glob, spec.file_name()); }))
    throw Error(fmt::format("{}: no parameter of the model matches \"{}\"", key, glob),
                fmt::format("names are as {}; * matches any characters, dots included",
                            specs[std::min<std::size_t>(2, specs.size() - 1)].file_name()));
}

bool matches(const std::string& glob, const std::string& name) {
  return ::fnmatch(glob.c_str(), name.c_str(), 0) == 0;
}

void choose_trainable(std::vector<ParameterSpec>& specs, const std::vector<std::string>& train,
                      const std::vector<std::string>& freeze, const std::string& train_key,
                      const std::string& freeze_key) {
  for (const std::string& glob : train) check_glob(glob, specs, train_key);
  for (const std::string& glob : freeze) check_glob(glob, specs, freeze_key);
  for (ParameterSpec& spec : specs)
    spec.trainable = (train.empty() || matches_any(train, spec.file_name())) &&
                     !matches_any(freeze, spec.file_name());
  if (std::ranges::none_of(specs, &ParameterSpec::trainable))
    throw Error(fmt::format("{} and {} leave nothing to train", train_key, freeze_key),
                fmt::format("make {} narrower", freeze_key));
}

TrainedParts trained_parts(const std::vector<ParameterSpec>& specs, std::int64_t layers) {
  TrainedParts parts;
  // A copy of the head is not trained where it is, but its gradient is computed.
  const auto has_gradient = [](const ParameterSpec& spec) {
    return spec.trainable || spec.head_apart;
  };
  if (std::ranges::all_of(specs, has_gradient)) return parts;
  parts.first_layer = layers;
  parts.head = false;
  std::vector<double> trained(static_cast<std::size_t>(layers)), all(trained.size());
  for (const ParameterSpec& spec : specs) {
    const ParameterPlace& place = spec.place;
    if (place.layer >= 0 && spec.shape.rank() == 2) {
      const auto layer = static_cast<std::size_t>(place.layer);
      const auto elements = static_cast<double>(spec.shape.elements());
      all[layer] += elements;
      trained[layer] += spec.trainable ? elements : 0;
    }
    if (!has_gradient(spec)) continue;
    if (place.layer >= 0) parts.first_layer = std::min(parts.first_layer, place.layer);
    if (place.at_top == &ModelParameters::embedding) parts.first_layer = 0;
    if (place.at_top == &ModelParameters::head || place.is_head_too) parts.head = true;
  }
  for (std::size_t l = 0; l < all.size(); ++l) trained[l] /= std::max(1.0, all[l]);
  parts.layers = std::move(trained);
  return parts;
}

}  // namespace longstride
