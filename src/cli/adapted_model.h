// A model directory and, by --adapter, a PEFT directory whose adapters are added to it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "model/adapter_directory.h"
#include "model/model_directory.h"
#include "train/engine.h"

namespace longstride::cli {

struct AdaptedModel {
  ModelDirectory directory;
  std::optional<AdapterDirectory> adapter = {};

  // What is trained: everything, or the adapters and the modules beside them. `compute` is the
  // numerics option, in its words.
  std::vector<ParameterSpec> specs(const Device& device, const std::string& compute) const;
  void load(ParameterSet& weights) const;
};

void add_adapter_option(CLI::App& command, std::string& adapter);
// `adapter` may be empty.
AdaptedModel open_adapted_model(const std::string& model, const std::string& adapter);

}  // namespace longstride::cli
