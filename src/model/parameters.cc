#include "model/parameters.h"

#include <utility>

#include "base/error.h"

namespace longstride {
namespace {

constexpr std::int64_t kAlignment = 256;

// A parameter and its place in ModelParameters: in a layer, or at the top where `layer` is -1.
struct Slot {
  ParameterSpec spec;
  std::int64_t layer = -1;
  View ModelParameters::*at_top = nullptr;
  View LayerParameters::*in_layer = nullptr;
};

std::vector<Slot> slots_of(const ModelConfig& c) {
  const std::int64_t d = c.hidden_size, q = c.query_heads * c.head_size,
                     kv = c.kv_heads * c.head_size;
  std::vector<Slot> slots;
  const auto top = [&](std::string name, Shape shape, bool decay, View ModelParameters::*place) {
    slots.push_back({{std::move(name), shape, decay}, -1, place, nullptr});
  };
  top("model.embed_tokens.weight", {c.vocabulary, d}, true, &ModelParameters::embedding);
  for (std::int64_t l = 0; l < c.layers; ++l) {
    const auto add = [&](std::string_view name, Shape shape, bool decay,
                         View LayerParameters::*place) {
      slots.push_back(
          {{fmt::format("model.layers.{}.{}", l, name), shape, decay}, l, nullptr, place});
    };
    const auto linear = [&](std::string_view name, std::int64_t out, std::int64_t in, bool bias,
                            View LayerParameters::*weight_place,
                            View LayerParameters::*bias_place) {
      add(fmt::format("{}.weight", name), {out, in}, true, weight_place);
      if (bias) add(fmt::format("{}.bias", name), {out}, false, bias_place);
    };
    using P = LayerParameters;
    add("input_layernorm.weight", {d}, false, &P::input_norm);
    linear("self_attn.q_proj", q, d, c.qkv_bias, &P::q, &P::q_bias);
    linear("self_attn.k_proj", kv, d, c.qkv_bias, &P::k, &P::k_bias);
    linear("self_attn.v_proj", kv, d, c.qkv_bias, &P::v, &P::v_bias);
    if (c.qk_norm) {
      add("self_attn.q_norm.weight", {c.head_size}, false, &P::q_norm);
      add("self_attn.k_norm.weight", {c.head_size}, false, &P::k_norm);
    }
    linear("self_attn.o_proj", d, q, c.output_bias, &P::o, &P::o_bias);
    add("post_attention_layernorm.weight", {d}, false, &P::post_norm);
    linear("mlp.gate_proj", c.ffn_size, d, c.mlp_bias, &P::gate, &P::gate_bias);
    linear("mlp.up_proj", c.ffn_size, d, c.mlp_bias, &P::up, &P::up_bias);
    linear("mlp.down_proj", d, c.ffn_size, c.mlp_bias, &P::down, &P::down_bias);
  }
  top("model.norm.weight", {d}, false, &ModelParameters::final_norm);
  if (!c.tied_embeddings) top("lm_head.weight", {c.vocabulary, d}, true, &ModelParameters::head);
  return slots;
}

struct Layout {
  std::vector<std::int64_t> offsets;
  std::int64_t bytes = 0;
};

Layout lay_out(const std::vector<ParameterSpec>& specs, const std::vector<DType>& dtypes) {
  LS_CHECK(specs.size() == dtypes.size(), "{} parameters, {} types", specs.size(), dtypes.size());
  Layout layout;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    layout.offsets.push_back(layout.bytes);
    const std::int64_t bytes = specs[i].shape.elements() * size_of(dtypes[i]);
    layout.bytes += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
  return layout;
}

}  // namespace

std::vector<ParameterSpec> parameter_specs(const ModelConfig& config) {
  std::vector<ParameterSpec> specs;
  for (Slot& slot : slots_of(config)) specs.push_back(std::move(slot.spec));
  return specs;
}

ParameterSet::ParameterSet(Device& device, const ModelConfig& config, std::vector<DType> dtypes,
                           const std::string& what)
    : device_(&device),
      config_(config),
      specs_(parameter_specs(config)),
      dtypes_(std::move(dtypes)) {
  Layout layout = lay_out(specs_, dtypes_);
  offsets_ = std::move(layout.offsets);
  bytes_ = layout.bytes;
  memory_ = device.allocate(bytes_, what);
}

ParameterSet::ParameterSet(Device& device, const ModelConfig& config, DType dtype,
                           const std::string& what)
    : ParameterSet(device, config, std::vector<DType>(parameter_specs(config).size(), dtype),
                   what) {}

std::int64_t ParameterSet::bytes_needed(const ModelConfig& config,
                                        const std::vector<DType>& dtypes) {
  return lay_out(parameter_specs(config), dtypes).bytes;
}

std::int64_t ParameterSet::bytes_needed(const ModelConfig& config, DType dtype) {
  const std::vector<ParameterSpec> specs = parameter_specs(config);
  return lay_out(specs, std::vector<DType>(specs.size(), dtype)).bytes;
}

View ParameterSet::view(std::int64_t i) const {
  LS_CHECK(i >= 0 && i < size(), "parameter {} of {}", i, size());
  const auto at = static_cast<std::size_t>(i);
  std::byte* base = memory_->data();
  return {base == nullptr ? nullptr : base + offsets_[at], dtypes_[at], specs_[at].shape};
}

ModelParameters ParameterSet::model() const {
  ModelParameters model;
  model.layers.resize(static_cast<std::size_t>(config_.layers));
  const std::vector<Slot> slots = slots_of(config_);
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const Slot& slot = slots[i];
    View& place = slot.layer < 0
                      ? model.*slot.at_top
                      : model.layers[static_cast<std::size_t>(slot.layer)].*slot.in_layer;
    place = view(static_cast<std::int64_t>(i));
  }
  if (config_.tied_embeddings) model.head = model.embedding;
  return model;
}

void ParameterSet::zero() { device_->zero(memory_->data(), bytes_); }

}  // namespace longstride
