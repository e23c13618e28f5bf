// The modules of a model that an adapter may change: names, shapes, and PEFT's rules for choosing
// them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/adapter_config.h"
#include "model/config.h"
#include "tensor/view.h"

namespace longstride {

// q_proj k_proj v_proj o_proj gate_proj up_proj down_proj; where files hold several of them in one
// tensor, qkv_proj o_proj gate_up_proj down_proj.
std::span<const std::string_view> adapter_targets(const ModelConfig& model);

struct ModuleWidths {
  std::int64_t in = 0, out = 0;
};
// Of a projection named in adapter_targets().
ModuleWidths adapter_target_widths(const ModelConfig& model, std::string_view target);

// "model.layers.3.self_attn.q_proj".
std::string adapter_module_name(std::int64_t layer, std::string_view target);
// `part` is 'A' or 'B'. The parameter is "model.layers.3.self_attn.q_proj.lora_A.weight"; its
// tensor in an adapter file has "base_model.model." before it, as every tensor there.
std::string adapter_parameter_name(std::int64_t layer, std::string_view target, char part);
std::string adapter_tensor_name(std::int64_t layer, std::string_view target, char part);
// A: [rank, in], B: [out, rank].
Shape adapter_shape(const ModelConfig& model, std::int64_t rank, std::string_view target,
                    char part);

// A tensor of an adapter file.
struct AdapterTensor {
  std::string name;       // in the file
  std::string parameter;  // adapter_parameter_name, or the model's parameter that it replaces
  Shape shape;
  std::int64_t layer = -1;  // these three are set for A and B alone
  std::string target;
  char part = 0;
};

// All tensors of an adapter: by layer and target A and B, then the parameters of also_train in the
// order of parameter_specs(). In a model that ties its head to its embedding, lm_head.weight comes
// last: if it is in also_train, or if tie_weights is set and either is.
// Throws Error, beginning with `where`, if an entry of also_train matches nothing, or a module that
// has an A and B.
std::vector<AdapterTensor> adapter_tensors(const AdapterConfig& config, const ModelConfig& model,
                                           const std::string& where);

// How adapter_config.json chooses modules. A pattern is Python's, matched against whole names.
struct ModuleChoice {
  std::vector<std::string> targets;  // names or ends of names; unused if there is a pattern
  std::string target_pattern;
  bool all_linear = false;
  std::vector<std::string> excluded;
  std::string excluded_pattern;
  std::vector<std::string> saved;    // modules_to_save: these get no A and B
  std::vector<std::int64_t> layers;  // empty: all
};
// Sets targets and layers of `config` to the chosen modules, as PEFT 0.21 would choose them.
// Throws Error, beginning with `where`, if they are none, or not the same in each layer, or the
// embedding or the head is among them.
void choose_modules(const ModuleChoice& choice, const ModelConfig& model, const std::string& where,
                    AdapterConfig& config);

}  // namespace longstride
