#include "train/accuracy_costs.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/sizes.h"
#include "tensor/dtype_words.h"

namespace longstride {
namespace {

constexpr double kExperimental = 5;  // percent

constexpr PageError kErrors[] = {
    {false, false, DType::kI8, {-1, -1, -1, -1}},
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
  const char* const what = e.gradients ? "gradients of pages" : "keys and values";
  const char* const layers = e.sparse ? "sparse" : "dense";
  std::string text = fmt::format("{} in {}, {} layers: ", what, word_of_pages(e.type), layers);
  if (e.percent[at] < 0)
    text += "not measured";
  else
    text += fmt::format("gradients differ by {}% at {} chunks, where they differ most",
                        e.percent[at], kMeasuredChunks[at]);
  if (chunks > kMeasuredChunks.back()) text += fmt::format("; {} chunks were not measured", chunks);
  if (e.experimental()) text += "; experimental";
  return text;
}

}  // namespace

bool PageError::experimental() const {
  return std::ranges::any_of(percent, [](double p) { return p > kExperimental; });
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
  for (const PageError& e : page_errors())
    // Layers with windows are counted as dense ones, whose pages get more additions.
    if (any_layer([&](std::int64_t l) {
          return n.sparse.is_sparse(l) == e.sparse && n.pages_of(l).of(e.gradients) == e.type;
        }) &&
        n.compute != e.type)
      costs.push_back(cost_of(e, chunks));
  const std::int64_t pages = (context + n.page_tokens - 1) / n.page_tokens;
  if (const std::int64_t budget = n.sparse.most_pages(); n.sparse.any() && budget < pages)
    costs.push_back(
        fmt::format("sparse layers attend to {} of {} pages: docs/sparse.md says what that finds",
                    budget, pages));
  if (plan.config.optimizer.state == "8bit")
    costs.emplace_back("moments in 8 bits, as bitsandbytes'");
  return costs;
}

}  // namespace longstride
