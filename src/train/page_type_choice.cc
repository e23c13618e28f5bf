#include "train/page_type_choice.h"

#include <algorithm>

#include "base/error.h"
#include "tensor/dtype_words.h"
#include "train/layer_pattern.h"

namespace longstride {
namespace {

constexpr const char* kKvWords = "auto, fp8 or int8";
constexpr const char* kGradientWords = "f32, bf16, fp8 or int8";

DType kv_type(const std::string& name, const std::string& word, DType compute) {
  if (word == "auto") return compute;
  if (const std::optional<DType> code = page_code_of_word(word)) return *code;
  throw Error(fmt::format("{} has '{}'", name, word), fmt::format("choose {}", kKvWords));
}

DType gradient_type(const std::string& name, const std::string& word) {
  if (const std::optional<DType> type = gradient_page_type_of_word(word)) return *type;
  throw Error(fmt::format("{} has '{}'", name, word), fmt::format("choose {}", kGradientWords));
}

}  // namespace

void choose_page_types(const NumericsChoice& choice, const ModelConfig& config,
                       NumericsRecord& record) {
  const std::string kv_name = "attention.kv_dtype (--attention-kv-dtype)",
                    gradient_name = "attention.kv_gradient_dtype (--attention-kv-gradient-dtype)";
  const PageTypes all{kv_type("kv_dtype", choice.kv_dtype, record.compute),
                      gradient_type("kv_gradient_dtype", choice.kv_gradient_dtype)};
  const std::vector<std::string> kv = words_of_layers(choice.layer_kv_dtypes, kv_name, kKvWords,
                                                      config.layers),
                                 gradients =
                                     words_of_layers(choice.layer_kv_gradient_dtypes, gradient_name,
                                                     kGradientWords, config.layers);
  std::vector<PageTypes> layers(static_cast<std::size_t>(config.layers), all);
  bool hot = false;
  for (std::size_t l = 0; l < layers.size(); ++l) {
    const std::int64_t window = config.windows[l];
    const bool sparse = record.sparse.is_sparse(static_cast<std::int64_t>(l)),
               few = !sparse && window > 0 && window <= kShortWindow * record.chunk_tokens;
    PageTypes& types = layers[l];
    if (!kv.empty())
      types.kv = kv_type(kv_name, kv[l], record.compute);
    else if (l == 0 && layers.size() > 1)
      types.kv = record.compute;
    if (!gradients.empty())
      types.gradients = gradient_type(gradient_name, gradients[l]);
    else if (few && is_page_code(types.gradients))
      types.gradients = DType::kBF16;
    hot = hot || (sparse && is_page_code(types.gradients));
  }
  record.hot_pages = hot ? choice.hot_pages : 0;
  record.set_pages(std::move(layers));
}

}  // namespace longstride
