// Generator: continues a sequence token by token. The prompt runs forward in chunks, as in an
// evaluation; keys and values stay in their pages. For every new token only the last, unfilled page
// is computed again, attending to the pages before it.
//
// Not thread-safe: one thread owns it. Config, weights and device outlive it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "model/config.h"
#include "model/parameters.h"
#include "pages/flat_pages.h"
#include "pages/page_summaries.h"
#include "train/forward_chunks.h"

namespace longstride {

class Generator {
 public:
  // Allocates pages and workspace for sequences of up to `max_tokens`, all on the device of the
  // weights. With sparse layers, tokens of the prompt's last, incomplete chunk and all new ones
  // select their pages one page of queries at a time.
  Generator(const ModelConfig& config, const ParameterSet& weights, const NumericsRecord& numerics,
            std::int64_t max_tokens);
  Generator(const Generator&) = delete;
  Generator& operator=(const Generator&) = delete;
  // Bytes of the pages, which are nearly all that it allocates.
  static std::int64_t page_bytes(const ModelConfig& config, const NumericsRecord& numerics,
                                 std::int64_t max_tokens);

  // Adds tokens (of the vocabulary, at least one) to the sequence. Afterwards logits() are those
  // that follow the last one. If should_stop, polled before every task, returns true, throws
  // Interrupted (train/step.h), and the sequence is what it was.
  void extend(std::span<const std::int32_t> tokens,
              const std::function<bool()>& should_stop = nullptr);
  // Begins an empty sequence.
  void clear();

  std::span<const std::int32_t> tokens() const { return tokens_; }
  std::int64_t max_tokens() const { return max_tokens_; }
  // F32, one for each token of the vocabulary; meaningless before the first extend().
  std::span<const float> logits() const { return logits_; }

 private:
  void compute(const std::function<bool()>& should_stop);

  const ModelConfig& config_;
  NumericsRecord numerics_;
  Device& device_;
  std::int64_t max_tokens_;
  ModelParameters weights_, no_gradients_;
  FlatPages pages_;
  PageSummaries summaries_;
  RetainedActivations retained_;  // nothing
  RopeOnDevice rope_;
  std::unique_ptr<Memory> arena_;
  std::unique_ptr<ForwardChunks> chunks_, single_pages_;  // chunks_: null if the context has none
  std::vector<std::int32_t> tokens_;
  std::int64_t done_ = 0;  // tokens whose pages are full and computed
  std::vector<float> logits_;
};

// The token with the largest logit, the lowest of equals; with a temperature above 0 one drawn from
// softmax(logits / temperature), in double, by a number that only `seed` and `position` decide.
// Throws Error if a logit is not finite.
std::int32_t choose_token(std::span<const float> logits, double temperature, std::uint64_t seed,
                          std::int64_t position);

struct GenerateOptions {
  std::int64_t count = 0;  // at most so many tokens
  double temperature = 0;  // 0: greedy
  std::uint64_t seed = 0;
  std::vector<std::int32_t> stop;  // ends with the first of these, which is part of the result
};
// Continues the generator's sequence, which has a token and room for `count` more. Calls `on_token`
// with every token. Returns the new ones, of which the last is not computed.
std::vector<std::int32_t> generate(Generator& generator, const GenerateOptions& options,
                                   const std::function<void(std::int32_t)>& on_token = nullptr,
                                   const std::function<bool()>& should_stop = nullptr);

}  // namespace longstride
