// Random models and sequences for tests of the step.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "base/random.h"
#include "model/parameters.h"
#include "tests/train/planned_runner.h"
#include "train/step.h"

namespace longstride {

struct RandomCase {
  ModelConfig config;
  std::vector<std::int32_t> tokens, targets;
  std::vector<std::int64_t> document_starts;
  std::int64_t chunk = 0, page = 0, keep_chunks = 1;
};

// Targets within documents; about one in `masked_one_in` is masked (0: none).
inline void fill_sequence(RandomCase& c, Random& random, std::int64_t tokens,
                          std::uint64_t documents, std::uint64_t masked_one_in) {
  c.tokens.resize(static_cast<std::size_t>(tokens));
  for (auto& t : c.tokens)
    t = static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(c.config.vocabulary)));
  c.document_starts = {0};
  for (std::uint64_t i = 1; i < documents && tokens > 1; ++i)
    c.document_starts.push_back(
        1 + static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(tokens - 1))));
  std::sort(c.document_starts.begin(), c.document_starts.end());
  c.document_starts.erase(std::unique(c.document_starts.begin(), c.document_starts.end()),
                          c.document_starts.end());
  c.targets.assign(c.tokens.size(), -100);
  for (std::size_t t = 0; t + 1 < c.tokens.size(); ++t) {
    const bool ends = std::binary_search(c.document_starts.begin(), c.document_starts.end(),
                                         static_cast<std::int64_t>(t) + 1);
    if (!ends && (masked_one_in == 0 || random.below(masked_one_in) != 0))
      c.targets[t] = c.tokens[t + 1];
  }
  if (std::all_of(c.targets.begin(), c.targets.end(), [](std::int32_t t) { return t < 0; }))
    c.targets.back() = 0;
}

// What Gemma 3 has besides norms of inputs, outputs, q and k; every second layer is local.
inline void make_like_gemma3(ModelConfig& m) {
  m.qk_norm = m.output_norms = m.gelu = m.scaled_embedding = true;
  m.norm_offset = 1;
  m.attention_scalar = 1.5 * static_cast<double>(m.head_size);
  m.local_rope.emplace().theta = 50;
  m.local_layers.clear();
  for (std::int64_t l = 0; l < m.layers; ++l) m.local_layers.push_back(l % 2 == 0);
}

inline ModelConfig random_config(Random& random) {
  const auto pick = [&](std::initializer_list<std::int64_t> options) {
    return *(options.begin() + random.below(options.size()));
  };
  ModelConfig m;
  m.layers = pick({1, 2, 3});
  m.kv_heads = pick({1, 2, 3});
  m.query_heads = m.kv_heads * pick({1, 2, 3});
  m.head_size = pick({2, 4, 8, 16});
  m.hidden_size = pick({8, 12, 24});
  m.ffn_size = pick({8, 20, 33});
  m.vocabulary = pick({11, 32, 50});
  m.rms_eps = 1e-5;
  m.qkv_bias = random.below(2) != 0;
  m.output_bias = random.below(3) == 0;
  m.mlp_bias = random.below(3) == 0;
  m.qk_norm = random.below(3) == 0;
  m.tied_embeddings = random.below(3) == 0;
  m.rope.theta = 1000;
  m.max_positions = 1 << 20;
  for (std::int64_t l = 0; l < m.layers; ++l)
    m.windows.push_back(random.below(2) != 0 ? 0 : pick({1, 5, 16, 40, 100}));
  return m;
}

// Half of the models get what only some families have.
inline void vary_family(ModelConfig& m, std::uint64_t seed) {
  Random random(seed, 78);
  if (random.below(2) == 0) return;
  m.wide_qk_norm = m.qk_norm && random.below(2) != 0;
  m.output_norms = random.below(2) != 0;
  m.input_norms = !m.output_norms || random.below(2) != 0;
  if (random.below(2) != 0) make_like_gemma3(m);
}

inline RandomCase random_case(std::uint64_t seed) {
  Random random(seed, 77);
  RandomCase c;
  c.config = random_config(random);
  vary_family(c.config, seed);
  c.page = 16 * (1 + static_cast<std::int64_t>(random.below(3)));
  c.chunk = c.page * (1 + static_cast<std::int64_t>(random.below(4)));
  c.keep_chunks = 1 + static_cast<std::int64_t>(random.below(3));
  fill_sequence(c, random, 2 + static_cast<std::int64_t>(random.below(200)), 1 + random.below(5),
                random.below(2) * 4);
  return c;
}

// All parameters random, norms and biases too, so that every gradient matters.
inline std::unique_ptr<ParameterSet> random_weights(Device& device, const ModelConfig& config,
                                                    std::uint64_t seed) {
  auto weights = std::make_unique<ParameterSet>(device, config, DType::kF32, "weights");
  for (std::int64_t i = 0; i < weights->size(); ++i) {
    Random random(seed, static_cast<std::uint64_t>(1000 + i));
    const View view = weights->view(i);
    const bool norm =
        weights->specs()[static_cast<std::size_t>(i)].name.find("norm") != std::string::npos;
    for (std::int64_t e = 0; e < view.elements(); ++e)
      view.as<float>()[e] =
          static_cast<float>((norm ? 1.0 - config.norm_offset : 0.0) + 0.3 * random.normal());
  }
  return weights;
}

struct StepOutcome {
  SequenceResult result;
  std::unique_ptr<ParameterSet> gradients;
  std::vector<float> losses;
  double loss() const { return result.loss_sum / static_cast<double>(result.targets); }
};

inline StepOutcome run_step(Device& device, const RandomCase& c, const ParameterSet& weights,
                            std::int64_t chunk, std::int64_t page, std::int64_t keep_chunks,
                            std::int64_t first_position = 0, bool rebuild_feed_forward = false,
                            const NumericsChoice& choice = {}, std::uint64_t rounding = 0) {
  StepOutcome out;
  out.gradients = std::make_unique<ParameterSet>(device, c.config, DType::kF32, "gradients");
  StepRunner runner = planned_runner(c.config, weights, *out.gradients,
                                     choose_numerics(device, c.config, chunk, page, choice),
                                     {static_cast<std::int64_t>(c.tokens.size()), keep_chunks,
                                      within_episode(rebuild_feed_forward)});
  const auto counted = static_cast<double>(
      std::count_if(c.targets.begin(), c.targets.end(), [](std::int32_t t) { return t >= 0; }));
  runner.record_losses();
  out.result =
      runner.run({c.tokens, c.targets, c.document_starts, first_position, rounding}, 1.0 / counted);
  out.losses.assign(runner.losses().begin(), runner.losses().end());
  return out;
}

// |a - b| / |b| in the Frobenius norm.
template <class Reference>
double relative_error(const float* a, const Reference* b, std::int64_t n) {
  double difference = 0, norm = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const double d = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    difference += d * d;
    norm += static_cast<double>(b[i]) * static_cast<double>(b[i]);
  }
  return norm == 0 ? (difference == 0 ? 0 : 1e300) : std::sqrt(difference / norm);
}

inline bool same_bits(const ParameterSet& a, const ParameterSet& b) {
  return a.bytes() == b.bytes() && std::equal(a.data(), a.data() + a.bytes(), b.data());
}

}  // namespace longstride
