// Random models with sparse layers.
#pragma once

#include "tests/train/step_fixture.h"

namespace longstride {

struct SparseCase : RandomCase {
  SparseLayers sparse;
};

// Some layers may stay dense or have a window.
inline SparseCase sparse_case(std::uint64_t seed) {
  Random random(seed, 21);
  const auto pick = [&](std::initializer_list<std::int64_t> options) {
    return *(options.begin() + random.below(options.size()));
  };
  SparseCase c;
  c.config = random_config(random);
  vary_family(c.config, seed);
  c.page = 16 * pick({1, 2});
  c.chunk = c.page * pick({1, 2, 4});
  c.keep_chunks = pick({1, 2});
  Selection& s = c.sparse.selection;
  s.sinks = pick({0, 1, 2});
  s.recent = pick({0, 1, 2});
  s.summary_tokens = c.page / pick({1, 2, 4});
  s.scoring = static_cast<Scoring>(random.below(3));
  if (s.summary_tokens < c.page && random.below(2) == 0) s.summary = Summary::kOutliers;
  std::int64_t largest = s.forced();
  for (std::int64_t l = 0; l < c.config.layers; ++l) {
    const bool dense = l > 0 && random.below(4) == 0;
    c.sparse.budgets.push_back(dense ? SparseLayers::kNone : s.forced() + pick({0, 1, 2, 5, 30}));
    largest = std::max(largest, c.sparse.budgets.back());
  }
  s.union_pages = largest + pick({0, 2, 100});
  fill_sequence(c, random, 2 + static_cast<std::int64_t>(random.below(350)), pick({1, 1, 1, 4}),
                random.below(2) * 4);
  return c;
}

// Smaller matrices than random_weights: errors then do not grow from layer to layer, and gradients
// can be compared as closely as those of dense attention.
inline std::unique_ptr<ParameterSet> gentle_weights(Device& device, const ModelConfig& config,
                                                    std::uint64_t seed) {
  auto weights = random_weights(device, config, seed);
  for (std::int64_t i = 0; i < weights->size(); ++i) {
    const View view = weights->view(i);
    if (view.shape().rank() == 2)
      for (std::int64_t e = 0; e < view.elements(); ++e) view.as<float>()[e] *= 0.5f;
  }
  return weights;
}

}  // namespace longstride
