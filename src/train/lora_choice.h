// The adapters of a run, from `[lora]` and from the adapter that it begins or goes on with.
#pragma once

#include <string>

#include "model/adapter_config.h"
#include "model/adapter_directory.h"
#include "train/config.h"

namespace longstride {

// `from`: the adapter of lora.path or of the checkpoint, whose settings count; null: there is none.
// Throws Error for a target, layer or module that the model does not have, and for settings that
// differ from those of `from`. `base` names the model.
AdapterConfig choose_adapter(const LoraConfig& lora, const ModelConfig& model,
                             const AdapterDirectory* from, const std::string& base);

}  // namespace longstride
