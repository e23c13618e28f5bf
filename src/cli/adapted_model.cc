#include "cli/adapted_model.h"

#include "cli/usage.h"
#include "model/fold_adapters.h"

namespace longstride::cli {

std::vector<ParameterSpec> AdaptedModel::specs(const Device& device,
                                               const std::string& compute) const {
  std::vector<ParameterSpec> specs = directory.specs();
  if (adapter)
    add_adapters(specs, adapter->config(), directory.config(), compute_type(device, compute));
  return specs;
}

void AdaptedModel::load(ParameterSet& weights) const {
  directory.load(weights);
  if (adapter) load_adapters(*adapter, weights);
}

void add_adapter_option(CLI::App& command, std::string& adapter) {
  command.add_option("--adapter", adapter, "PEFT directory whose adapters are added to the model")
      ->check(not_empty());
}

AdaptedModel open_adapted_model(const std::string& model, const std::string& adapter) {
  AdaptedModel adapted{ModelDirectory::open(model)};
  if (!adapter.empty())
    adapted.adapter.emplace(AdapterDirectory::open(adapter, adapted.directory.config()));
  return adapted;
}

}  // namespace longstride::cli
