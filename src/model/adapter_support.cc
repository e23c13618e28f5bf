#include "model/adapter_support.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <vector>

#include "base/error.h"
#include "model/config_support.h"

namespace longstride {
namespace {

struct RefusedOption {
  std::string_view field;
  std::string_view reason;
};

// Refused unless null, false, 0 or empty.
constexpr auto kRefusedOptions = std::to_array<RefusedOption>({
    {"use_dora", "DoRA is not supported"},
    {"lora_bias", "adapters with biases are not supported"},
    {"rank_pattern", "ranks that differ by module are not supported"},
    {"alpha_pattern", "values of alpha that differ by module are not supported"},
    {"target_parameters", "adapters of parameters that are not modules are not supported"},
    {"trainable_token_indices", "training single tokens of the embedding is not supported"},
    {"alora_invocation_tokens", "activated LoRA is not supported"},
    {"use_qalora", "QALoRA is not supported"},
    {"arrow_config", "Arrow routing is not supported"},
    {"use_bdlora", "block-diagonal LoRA is not supported"},
    {"velora_config", "VeLoRA is not supported"},
    {"kasa_config", "KaSA is not supported"},
    {"monteclora_config", "MonteCLoRA is not supported"},
    {"megatron_config", "Megatron's parallel layers are not supported"},
    {"layer_replication", "replicated layers are not supported"},
});

// Read by the parser, or known not to affect the result.
constexpr auto kKnownOptions = std::to_array<std::string_view>({
    "r",
    "lora_alpha",
    "use_rslora",
    "lora_dropout",
    "target_modules",
    "exclude_modules",
    "layers_to_transform",
    "layers_pattern",
    "modules_to_save",
    "ensure_weight_tying",
    "base_model_name_or_path",
    "peft_type",
    "task_type",
    "bias",
    "init_lora_weights",
    // PEFT itself turns it off for linear modules.
    "fan_in_fan_out",
    // Of no effect without the option they belong to.
    "loftq_config",
    "eva_config",
    "corda_config",
    "lora_ga_config",
    "qalora_group_size",
    "megatron_core",
    "runtime_config",
    // Bookkeeping.
    "auto_mapping",
    "inference_mode",
    "peft_version",
    "revision",
});

constexpr const char* kMergeHint =
    "merge the adapter into its model with PEFT (merge_and_unload), and use the result";

// PEFT would change the base weights by its own decomposition of them before it adds the adapter.
void check_init(const Fields& fields) {
  if (!fields.has("init_lora_weights")) return;
  const Json& init = fields.value("init_lora_weights");
  if (init.is_boolean() || init == "gaussian" || init == "eva" || init == "orthogonal") return;
  fields.fail("init_lora_weights",
              fmt::format("is {}, which changes the base weights or how the adapter is trained",
                          shown(init)),
              "convert the adapter to a plain one with PEFT (save_pretrained with "
              "path_initial_model_for_weight_conversion)");
}

}  // namespace

void check_adapter_supported(const Fields& fields) {
  if (const std::string type = fields.text("peft_type"); type != "LORA")
    fields.fail("peft_type", fmt::format("is \"{}\", but only LORA is supported", type),
                kMergeHint);
  if (const std::string task = fields.text_or("task_type", "CAUSAL_LM"); task != "CAUSAL_LM")
    fields.fail("task_type", fmt::format("is \"{}\", but only CAUSAL_LM is supported", task));
  if (const std::string bias = fields.text_or("bias", "none"); bias != "none")
    fields.fail("bias", fmt::format("is \"{}\", but trained biases are not supported", bias),
                kMergeHint);
  for (const RefusedOption& r : kRefusedOptions) {
    if (!fields.has(r.field) || is_unset(fields.value(r.field))) continue;
    fields.fail(r.field, fmt::format("is {}, but {}", shown(fields.value(r.field)), r.reason),
                kMergeHint);
  }
  check_init(fields);
  std::vector<std::string_view> known(kKnownOptions.begin(), kKnownOptions.end());
  std::ranges::transform(kRefusedOptions, std::back_inserter(known), &RefusedOption::field);
  warn_unknown(fields, known);
}

}  // namespace longstride
