#include "plan/cost_flops.h"

#include <algorithm>

namespace longstride {
namespace {

// Pairs of a query and a key that it attends to, in a layer without selected pages.
double pairs_seen(std::int64_t tokens, std::int64_t window) {
  const auto n = static_cast<double>(tokens),
             w = static_cast<double>(window > 0 ? std::min(window, tokens) : tokens);
  return w * (w + 1) / 2 + (n - w) * w;
}

double pairs_selected(const StepPlan& plan, std::int64_t budget) {
  double pairs = 0;
  for (std::int64_t begin = 0; begin < plan.max_tokens; begin += plan.chunk_tokens) {
    const auto queries = static_cast<double>(std::min(plan.chunk_tokens, plan.max_tokens - begin));
    const std::int64_t pages = std::min(budget, begin / plan.page_tokens);
    pairs += queries * (queries + 1) / 2 + queries * static_cast<double>(pages * plan.page_tokens);
  }
  return pairs;
}

}  // namespace

double step_model_flops(const ModelConfig& config, const StepPlan& plan) {
  const SparseLayers& sparse = plan.schedule.sparse;
  double pairs = 0;
  for (std::int64_t layer = 0; layer < config.layers; ++layer)
    pairs += sparse.is_sparse(layer)
                 ? pairs_selected(plan, sparse.budget(layer))
                 : pairs_seen(plan.max_tokens, config.windows[static_cast<std::size_t>(layer)]);
  // A product of weights counts 2 forward and 4 backward, a pair 4 and 8 per head and element.
  return 6.0 * static_cast<double>(matrix_parameter_count(config)) *
             static_cast<double>(plan.max_tokens) +
         12.0 * static_cast<double>(config.query_heads * config.head_size) * pairs;
}

}  // namespace longstride
