// AdapterConfig: what PEFT's adapter_config.json says about a LoRA adapter, checked. Plain data.
//
// An option of PEFT that would change the result and is not supported is refused by name. An
// unknown field with a value causes a warning and is otherwise ignored, as in PEFT.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"
#include "model/config.h"

namespace longstride {

inline constexpr const char* kAdapterConfig = "adapter_config.json";
inline constexpr const char* kAdapterWeights = "adapter_model.safetensors";

// Every target of every layer of the list has one A and one B.
struct AdapterConfig {
  std::int64_t rank = 16;
  double alpha = 32;
  bool rslora = false;
  double dropout = 0;
  std::vector<std::string> targets;  // of adapter_targets(), in that order
  std::vector<std::int64_t> layers;  // sorted; empty: all
  // PEFT's modules_to_save: modules that are trained and stored whole. PEFT matches them by the end
  // of a module's name, so "norm" means every norm.
  std::vector<std::string> also_train;
  // PEFT's ensure_weight_tying: where the model ties embedding and head, training one of them
  // trains both. If false, the one in also_train is trained apart from the other, and the model is
  // no longer tied.
  bool tie_weights = false;
  std::string base_model;  // path or name of the model it was trained on; may be empty

  // The factor of B*A: alpha / rank, or alpha / sqrt(rank) with rslora.
  double scale() const;
  bool operator==(const AdapterConfig&) const = default;
};

// `where` (a path) begins every error's message. The model decides which modules the names and
// patterns of target_modules mean.
AdapterConfig parse_adapter_config(const Json& json, const std::string& where,
                                   const ModelConfig& model);
// Reads `directory`/adapter_config.json.
AdapterConfig read_adapter_config(const std::filesystem::path& directory, const ModelConfig& model);

// As PEFT writes it, with the fields that PEFT 0.10 and all later versions know.
Json adapter_config_json(const AdapterConfig& config);

}  // namespace longstride
