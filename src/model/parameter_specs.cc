#include "model/parameter_specs.h"

#include <utility>

#include "base/error.h"

namespace longstride {

std::vector<ParameterSpec> parameter_specs(const ModelConfig& c, DType dtype) {
  const std::int64_t d = c.hidden_size, q = c.query_heads * c.head_size,
                     kv = c.kv_heads * c.head_size;
  LS_CHECK(!c.fused_files || (!c.qkv_bias && !c.mlp_bias), "fused tensors have no biases");
  std::vector<ParameterSpec> specs;
  const auto push = [&](std::string name, Shape shape, bool decay, ParameterPlace place) {
    specs.push_back(
        {.name = std::move(name), .shape = shape, .dtype = dtype, .decay = decay, .place = place});
  };
  push("model.embed_tokens.weight", {c.vocabulary, d}, true,
       {.at_top = &ModelParameters::embedding, .is_head_too = c.tied_embeddings});
  for (std::int64_t l = 0; l < c.layers; ++l) {
    const auto add = [&](std::string_view name, Shape shape, bool decay,
                         View LayerParameters::*place) {
      push(fmt::format("model.layers.{}.{}", l, name), shape, decay,
           {.layer = l, .in_layer = place});
    };
    const auto linear = [&](std::string_view name, std::int64_t out, std::int64_t in, bool bias,
                            View LayerParameters::*weight_place,
                            View LayerParameters::*bias_place) {
      add(fmt::format("{}.weight", name), {out, in}, true, weight_place);
      if (bias) add(fmt::format("{}.bias", name), {out}, false, bias_place);
    };
    // A weight that is a range of rows of the file's tensor.
    const auto rows_of = [&](std::string_view tensor, std::int64_t first, std::int64_t of) {
      specs.back().part = FilePart{fmt::format("model.layers.{}.{}.weight", l, tensor), first, of};
    };
    using P = LayerParameters;
    if (c.input_norms) add("input_layernorm.weight", {d}, false, &P::input_norm);
    linear("self_attn.q_proj", q, d, c.qkv_bias, &P::q, &P::q_bias);
    if (c.fused_files) rows_of("self_attn.qkv_proj", 0, q + 2 * kv);
    linear("self_attn.k_proj", kv, d, c.qkv_bias, &P::k, &P::k_bias);
    if (c.fused_files) rows_of("self_attn.qkv_proj", q, q + 2 * kv);
    linear("self_attn.v_proj", kv, d, c.qkv_bias, &P::v, &P::v_bias);
    if (c.fused_files) rows_of("self_attn.qkv_proj", q + kv, q + 2 * kv);
    if (c.qk_norm) {
      add("self_attn.q_norm.weight", {c.wide_qk_norm ? q : c.head_size}, false, &P::q_norm);
      add("self_attn.k_norm.weight", {c.wide_qk_norm ? kv : c.head_size}, false, &P::k_norm);
    }
    linear("self_attn.o_proj", d, q, c.output_bias, &P::o, &P::o_bias);
    // The name means "after attention": of its output, or else of the next input.
    if (c.output_norms) add("post_attention_layernorm.weight", {d}, false, &P::attention_norm);
    if (c.input_norms)
      add(c.output_norms ? "pre_feedforward_layernorm.weight" : "post_attention_layernorm.weight",
          {d}, false, &P::post_norm);
    linear("mlp.gate_proj", c.ffn_size, d, c.mlp_bias, &P::gate, &P::gate_bias);
    if (c.fused_files) rows_of("mlp.gate_up_proj", 0, 2 * c.ffn_size);
    linear("mlp.up_proj", c.ffn_size, d, c.mlp_bias, &P::up, &P::up_bias);
    if (c.fused_files) rows_of("mlp.gate_up_proj", c.ffn_size, 2 * c.ffn_size);
    linear("mlp.down_proj", d, c.ffn_size, c.mlp_bias, &P::down, &P::down_bias);
    if (c.output_norms) add("post_feedforward_layernorm.weight", {d}, false, &P::ffn_norm);
  }
  push("model.norm.weight", {d}, false, {.at_top = &ModelParameters::final_norm});
  if (!c.tied_embeddings)
    push("lm_head.weight", {c.vocabulary, d}, true, {.at_top = &ModelParameters::head});
  return specs;
}

std::vector<ParameterSpec> with_dtype(std::vector<ParameterSpec> specs, DType dtype) {
  for (ParameterSpec& spec : specs) spec.dtype = dtype;
  return specs;
}

}  // namespace longstride
