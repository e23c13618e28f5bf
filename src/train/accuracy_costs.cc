#include "train/accuracy_costs.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/sizes.h"
#include "tensor/dtype_words.h"

namespace longstride {
namespace {

constexpr double kExperimental = 5;  // percent

using Pages = PageError::Pages;
constexpr PageError kErrors[] = {
    {false, Pages::kKeys, DType::kI8, {0.8, 0.6, 0.6, 0.6}},
    {false, Pages::kKeys, DType::kF8E4M3, {3.1, 2.7, 2.6, 2.6}},
    {false, Pages::kAllKeys, DType::kI8, {3.8, 4.5, 4.2, 0.7}},
    {false, Pages::kAllKeys, DType::kF8E4M3, {23.9, 33.4, 16.4, 4.2}},
    {false, Pages::kGradients, DType::kBF16, {0.4, 0.6, 0.8, 1.3}},
    {false, Pages::kGradients, DType::kI8, {1.8, 1.9, 2.8, 4.9}},
    {false, Pages::kGradients, DType::kF8E4M3, {4.7, 6.6, 11.2, 21.0}},
    {true, Pages::kKeys, DType::kI8, {-1, 0.6, 0.6, 0.3}},
    {true, Pages::kKeys, DType::kF8E4M3, {-1, 2.4, 2.7, 1.4}},
    {true, Pages::kAllKeys, DType::kI8, {-1, 6.1, 8.1, 4.5}},
    {true, Pages::kAllKeys, DType::kF8E4M3, {-1, 32.4, 21.1, 11.2}},
    {true, Pages::kGradients, DType::kBF16, {-1, 0.5, 0.6, 0.5}},
    {true, Pages::kGradients, DType::kI8, {-1, 1.5, 1.4, 0.4}},
    {true, Pages::kGradients, DType::kF8E4M3, {-1, 4.0, 3.5, 1.1}},
};

// Where the error of so many chunks stands in a row, at the next longer measured length; the last
// if there is none.
std::size_t column_of(std::int64_t chunks) {
  const auto longer = std::ranges::lower_bound(kMeasuredChunks, chunks);
  return static_cast<std::size_t>(std::min(longer, kMeasuredChunks.end() - 1) -
                                  kMeasuredChunks.begin());
}

std::string cost_of(const PageError& e, std::int64_t chunks) {
  const std::size_t at = column_of(chunks);
  const char* const what = e.gradients() ? "gradients of pages" : "keys and values";
  const char* const layers = e.sparse ? "sparse" : "dense";
  std::string text = fmt::format("{} in {}, {} layers: ", what, word_of_pages(e.type), layers);
  if (e.percent[at] < 0)
    text += "not measured";
  else
    text += fmt::format("gradients differ by {}% at {} chunks, in the parameters that suffer most",
                        e.percent[at], kMeasuredChunks[at]);
  if (chunks > kMeasuredChunks.back()) text += fmt::format("; {} chunks were not measured", chunks);
  if (e.experimental()) text += "; experimental";
  return text;
}

}  // namespace

bool PageError::experimental() const {
  const double last = percent[3], before = percent[2];
  return std::ranges::any_of(percent, [](double p) { return p > kExperimental; }) ||
         (last > before && last * last / before > kExperimental);
}

std::span<const PageError> page_errors() { return kErrors; }

std::vector<std::string> accuracy_costs(const RunPlan& plan) {
  const NumericsRecord& n = plan.numerics;
  const ModelConfig& config = plan.model.config;
  const std::int64_t context = plan.config.training.context,
                     chunks = (context + n.chunk_tokens - 1) / n.chunk_tokens;
  std::vector<std::string> costs;
  const auto any_layer = [&](const auto& holds) {
    for (std::int64_t l = 0; l < config.layers; ++l)
      if (holds(l)) return true;
    return false;
  };
  const PageError::Pages keys = config.layers > 1 && is_page_code(n.pages_of(0).kv)
                                    ? PageError::Pages::kAllKeys
                                    : PageError::Pages::kKeys;
  for (const PageError& e : page_errors())
    // Layers with windows are counted as dense ones, whose pages get more additions.
    if ((e.gradients() || e.pages == keys) && any_layer([&](std::int64_t l) {
          return n.sparse.is_sparse(l) == e.sparse && n.pages_of(l).of(e.gradients()) == e.type;
        }))
      costs.push_back(cost_of(e, chunks));
  const std::int64_t pages = (context + n.page_tokens - 1) / n.page_tokens;
  if (const std::int64_t budget = n.sparse.most_pages(); n.sparse.any() && budget < pages)
    costs.push_back(
        fmt::format("sparse layers attend to {} of {} pages: docs/sparse.md says what that finds",
                    budget, pages));
  if (plan.config.optimizer.state == "8bit")
    costs.emplace_back("moments in 8 bits: as bitsandbytes has them");
  return costs;
}

}  // namespace longstride
