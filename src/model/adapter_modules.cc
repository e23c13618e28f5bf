#include "model/adapter_modules.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "model/parameter_specs.h"

namespace longstride {
namespace {

constexpr auto kTargets = std::to_array<std::string_view>(
    {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"});
constexpr auto kFusedTargets =
    std::to_array<std::string_view>({"qkv_proj", "o_proj", "gate_up_proj", "down_proj"});
constexpr std::string_view kPrefix = "base_model.model.";
constexpr std::string_view kHead = "lm_head";
constexpr std::string_view kEmbedding = "model.embed_tokens";

std::string_view module_of(std::string_view parameter) {
  return parameter.substr(0, parameter.rfind('.'));
}

// PEFT wraps every module whose name ends so, with all that is inside it.
bool is_in_module(std::string_view module, std::string_view ending) {
  for (std::size_t end = module.size(); end != 0 && end != std::string_view::npos;
       end = module.rfind('.', end - 1))
    if (module.substr(0, end).ends_with(ending)) return true;
  return false;
}

}  // namespace

std::span<const std::string_view> adapter_targets(const ModelConfig& model) {
  return model.fused_files ? std::span<const std::string_view>(kFusedTargets) : kTargets;
}

ModuleWidths adapter_target_widths(const ModelConfig& c, std::string_view target) {
  const std::int64_t q = c.query_heads * c.head_size, kv = c.kv_heads * c.head_size;
  if (target == "q_proj") return {c.hidden_size, q};
  if (target == "k_proj" || target == "v_proj") return {c.hidden_size, kv};
  if (target == "qkv_proj") return {c.hidden_size, q + 2 * kv};
  if (target == "o_proj") return {q, c.hidden_size};
  if (target == "gate_up_proj") return {c.hidden_size, 2 * c.ffn_size};
  if (target == "gate_proj" || target == "up_proj") return {c.hidden_size, c.ffn_size};
  LS_CHECK(target == "down_proj", "{}", target);
  return {c.ffn_size, c.hidden_size};
}

std::string adapter_module_name(std::int64_t layer, std::string_view target) {
  const bool feed_forward = target == "gate_proj" || target == "up_proj" ||
                            target == "gate_up_proj" || target == "down_proj";
  return fmt::format("model.layers.{}.{}.{}", layer, feed_forward ? "mlp" : "self_attn", target);
}

std::string adapter_parameter_name(std::int64_t layer, std::string_view target, char part) {
  LS_CHECK(part == 'A' || part == 'B', "part {}", part);
  return fmt::format("{}.lora_{}.weight", adapter_module_name(layer, target), part);
}

std::string adapter_tensor_name(std::int64_t layer, std::string_view target, char part) {
  return std::string(kPrefix) + adapter_parameter_name(layer, target, part);
}

Shape adapter_shape(const ModelConfig& model, std::int64_t rank, std::string_view target,
                    char part) {
  const ModuleWidths widths = adapter_target_widths(model, target);
  return part == 'A' ? Shape{rank, widths.in} : Shape{widths.out, rank};
}

std::vector<AdapterTensor> adapter_tensors(const AdapterConfig& config, const ModelConfig& model,
                                           const std::string& where) {
  std::vector<AdapterTensor> tensors;
  std::vector<std::int64_t> layers = config.layers;
  if (layers.empty())
    for (std::int64_t l = 0; l < model.layers; ++l) layers.push_back(l);
  for (const std::int64_t layer : layers)
    for (const std::string& target : config.targets)
      for (const char part : {'A', 'B'})
        tensors.push_back({adapter_tensor_name(layer, target, part),
                           adapter_parameter_name(layer, target, part),
                           adapter_shape(model, config.rank, target, part), layer, target, part});

  std::vector<bool> used(config.also_train.size());
  const auto is_saved = [&](std::string_view module) {
    bool saved = false;
    for (std::size_t i = 0; i < used.size(); ++i)
      if (is_in_module(module, config.also_train[i])) saved = used[i] = true;
    return saved;
  };
  const Shape table{model.vocabulary, model.hidden_size};
  const bool embedding = is_saved(kEmbedding), head = is_saved(kHead);
  const bool both = model.tied_embeddings && config.tie_weights && (embedding || head);
  for (const ParameterSpec& spec : parameter_specs(model)) {
    const std::string_view module = module_of(spec.name);
    if (is_saved(module) || (both && module == kEmbedding))
      tensors.push_back({std::string(kPrefix) + spec.name, spec.name, spec.shape});
  }
  if (model.tied_embeddings && (head || both)) {
    const std::string name = std::string(kHead) + ".weight";
    tensors.push_back({std::string(kPrefix) + name, name, table});
  }
  for (std::size_t i = 0; i < used.size(); ++i)
    if (!used[i])
      throw Error(fmt::format("{}: the model has no module \"{}\" to train whole", where,
                              config.also_train[i]),
                  "modules are named as in the model's files, such as embed_tokens, lm_head, norm "
                  "or input_layernorm");
  for (const std::string& target : config.targets)
    if (const std::string module = adapter_module_name(layers.front(), target); is_saved(module))
      throw Error(
          fmt::format("{}: {} would be trained whole and have an adapter too", where, module),
          "remove it from the targets, or from the modules that are trained whole");
  return tensors;
}

}  // namespace longstride
