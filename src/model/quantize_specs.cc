#include "model/quantize_specs.h"

#include <algorithm>

#include "base/error.h"

namespace longstride {
namespace {

std::string_view word_of_format(DType format) {
  return format == DType::kInt8Rows ? "int8" : "nf4";
}

}  // namespace

bool is_projection(const ParameterSpec& spec) {
  using P = LayerParameters;
  const auto all = {&P::q, &P::k, &P::v, &P::o, &P::gate, &P::up, &P::down};
  return spec.place.layer >= 0 && std::ranges::find(all, spec.place.in_layer) != all.end();
}

std::optional<DType> format_of_word(std::string_view word) {
  for (const DType format : {DType::kNf4, DType::kInt8Rows})
    if (word_of_format(format) == word) return format;
  return std::nullopt;
}

void quantize_projections(std::vector<ParameterSpec>& specs, DType format, const std::string& key) {
  for (ParameterSpec& spec : specs) {
    if (!is_projection(spec)) continue;
    if (is_block_format(spec.dtype)) {
      if (word_of_format(spec.dtype) == word_of_format(format)) continue;
      throw Error(fmt::format("{} is \"{}\", but {} is quantized as {} in its file", key,
                              word_of_format(format), spec.name, word_of_format(spec.dtype)),
                  "name the original model as model.path, or leave the setting out");
    }
    if (spec.part)
      throw Error(fmt::format("{} is \"{}\", but the model's files hold several projections in {}",
                              key, word_of_format(format), spec.part->tensor),
                  "leave the setting out, or train another model");
    spec.dtype = format;
    spec.trainable = false;
  }
}

std::string quantization_of(const std::vector<ParameterSpec>& specs) {
  for (const ParameterSpec& spec : specs)
    if (is_block_format(spec.dtype)) return std::string(word_of_format(spec.dtype));
  return "";
}

void refuse_trained_codes(const std::vector<ParameterSpec>& specs) {
  for (const ParameterSpec& spec : specs)
    if (spec.trainable && is_block_format(spec.dtype))
      throw Error(fmt::format("{} is quantized ({}) and cannot be trained", spec.name,
                              word_of_format(spec.dtype)),
                  "train adapters instead, freeze it (model.freeze = \"*_proj.weight\"), or name "
                  "a model that is not quantized, without model.quantize");
}

}  // namespace longstride
