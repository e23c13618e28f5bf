#include "plan/stage_spread.h"

#include <algorithm>
#include <limits>

#include "base/error.h"

namespace longstride {
namespace {

// Passes over a layer's products: forward, again, and backward for inputs and weights. A backward
// pass of attention computes five products where a forward pass computes two.
constexpr double kProductPasses = 4, kAttentionPasses = 4.5, kHeadPasses = 3;

double keys_of(const ModelConfig& config, const NumericsRecord& numerics, std::int64_t tokens,
               std::int64_t layer) {
  const double half = static_cast<double>(tokens) / 2;
  if (numerics.sparse.is_sparse(layer))
    return std::min(half,
                    static_cast<double>(numerics.chunk_tokens) / 2 +
                        static_cast<double>(numerics.sparse.budget(layer) * numerics.page_tokens));
  const std::int64_t window = config.windows[static_cast<std::size_t>(layer)];
  return window == 0 ? half : std::min(half, static_cast<double>(window));
}

}  // namespace

std::vector<std::int64_t> spread_layers(const ModelConfig& config, const NumericsRecord& numerics,
                                        std::int64_t tokens, std::int64_t stages) {
  const auto real = [](std::int64_t n) { return static_cast<double>(n); };
  const double D = real(config.hidden_size), Q = real(config.query_heads * config.head_size),
               K = real(config.kv_heads * config.head_size), F = real(config.ffn_size);
  std::vector<double> layers;
  for (std::int64_t layer = 0; layer < config.layers; ++layer)
    layers.push_back(kProductPasses * 2 * D * (2 * Q + 2 * K + 3 * F) +
                     kAttentionPasses * 4 * Q * keys_of(config, numerics, tokens, layer));
  return spread_costs(layers, kHeadPasses * 2 * D * real(config.vocabulary), stages);
}

std::vector<std::int64_t> spread_costs(const std::vector<double>& layers, double last,
                                       std::int64_t stages) {
  const std::int64_t n = std::ssize(layers);
  LS_CHECK(stages >= 1 && stages <= n, "{} stages for {} layers", stages, n);
  std::vector<double> sums = {0};  // of the layers before each
  for (const double cost : layers) sums.push_back(sums.back() + cost);
  const auto at = [](const auto& list, std::int64_t i) {
    return list[static_cast<std::size_t>(i)];
  };
  // Of spreads with equally slow stages, the one whose squares add up to least: the others are
  // even.
  struct Spread {
    double slowest = std::numeric_limits<double>::infinity(), squares = slowest;
    auto operator<=>(const Spread&) const = default;  // NOLINT(modernize-use-nullptr)
  };
  const auto with = [](double cost, const Spread& rest) {
    return Spread{std::max(cost, rest.slowest), cost * cost + rest.squares};
  };
  // least[i]: of the stages from `stage` on, if they have the layers from i on.
  std::vector<Spread> least(layers.size() + 1);
  std::vector<std::vector<std::int64_t>> ends(static_cast<std::size_t>(stages));  // of `stage`
  for (std::int64_t stage = stages - 1; stage >= 0; --stage) {
    std::vector<Spread> now(layers.size() + 1);
    std::vector<std::int64_t>& end_of = ends[static_cast<std::size_t>(stage)];
    end_of.assign(layers.size() + 1, n);
    for (std::int64_t i = 0; i < n; ++i) {
      if (stage == stages - 1) {
        now[static_cast<std::size_t>(i)] = with(at(sums, n) - at(sums, i) + last, {0, 0});
        continue;
      }
      for (std::int64_t end = i + 1; end < n; ++end) {
        const Spread spread = with(at(sums, end) - at(sums, i), at(least, end));
        if (!(spread < at(now, i))) continue;
        now[static_cast<std::size_t>(i)] = spread;
        end_of[static_cast<std::size_t>(i)] = end;
      }
    }
    least = std::move(now);
  }
  std::vector<std::int64_t> cuts = {0};
  for (std::int64_t stage = 0; stage < stages; ++stage)
    cuts.push_back(at(ends[static_cast<std::size_t>(stage)], cuts.back()));
  return cuts;
}

}  // namespace longstride
