#include "train/generator.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/random.h"
#include "ops/kernel_choices.h"
#include "train/step.h"

namespace longstride {
namespace {

std::int64_t pages_of(std::int64_t tokens, std::int64_t page_tokens) {
  return (tokens + page_tokens - 1) / page_tokens;
}

}  // namespace

std::int64_t Generator::page_bytes(const ModelConfig& config, const NumericsRecord& numerics,
                                   std::int64_t max_tokens) {
  return FlatPages::bytes_needed(kv_shape(config, numerics),
                                 pages_of(max_tokens, numerics.page_tokens));
}

Generator::Generator(const ModelConfig& config, const ParameterSet& weights,
                     const NumericsRecord& numerics, std::int64_t max_tokens)
    : config_(config),
      numerics_(numerics),
      device_(weights.device()),
      max_tokens_(max_tokens),
      weights_(weights.model()),
      pages_(device_, kv_shape(config, numerics), pages_of(max_tokens, numerics.page_tokens)),
      summaries_(device_, kv_shape(config, numerics), numerics.sparse,
                 pages_of(max_tokens, numerics.page_tokens)),
      retained_(device_, {}),
      rope_(device_, config) {
  ops::use_kernel_choices(device_.stream(), numerics.choices);
  reserve_libraries(device_, config, numerics, max_tokens);
  const RunnerContext context{.device = device_,
                              .config = config_,
                              .numerics = numerics_,
                              .weights = weights_,
                              .gradients = no_gradients_,
                              .rope = rope_.views(),
                              .retained = retained_,
                              .summaries = summaries_};
  const auto runs = [&](std::int64_t chunk) {
    return std::make_unique<ForwardChunks>(context, weights.specs(), pages_, chunk, max_tokens);
  };
  single_pages_ = runs(numerics.page_tokens);
  std::int64_t workspace = single_pages_->workspace_bytes();
  // The last token is always computed with its page alone.
  if (numerics.chunk_tokens > numerics.page_tokens && max_tokens > numerics.chunk_tokens) {
    chunks_ = runs(numerics.chunk_tokens);
    workspace = std::max(workspace, chunks_->workspace_bytes());
  }
  arena_ = device_.allocate(workspace, "workspace");
  tokens_.reserve(static_cast<std::size_t>(max_tokens));
  logits_.resize(static_cast<std::size_t>(config.vocabulary));
}

void Generator::extend(std::span<const std::int32_t> tokens,
                       const std::function<bool()>& should_stop) {
  const std::size_t before = tokens_.size();
  LS_CHECK(!tokens.empty() && std::ssize(tokens_) + std::ssize(tokens) <= max_tokens_,
           "{} tokens after {}, room for {}", tokens.size(), before, max_tokens_);
  for (const std::int32_t t : tokens)
    LS_CHECK(t >= 0 && t < config_.vocabulary, "token {} of {}", t, config_.vocabulary);
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  try {
    compute(should_stop);
  } catch (...) {
    tokens_.resize(before);
    const auto full = static_cast<std::int64_t>(before) / numerics_.page_tokens;
    done_ = std::min(done_, full * numerics_.page_tokens);
    throw;
  }
}

void Generator::compute(const std::function<bool()>& should_stop) {
  const std::int64_t page = numerics_.page_tokens, chunk = numerics_.chunk_tokens,
                     last = (std::ssize(tokens_) - 1) / page;
  std::byte* const arena = arena_->data();
  while (done_ < last * page) {
    const bool whole = chunks_ != nullptr && done_ % chunk == 0 && done_ + chunk <= last * page;
    ForwardChunks& runs = whole ? *chunks_ : *single_pages_;
    runs.run(arena, tokens_, done_ / runs.chunk_tokens(), nullptr, should_stop);
    done_ += runs.chunk_tokens();
  }
  single_pages_->run(arena, tokens_, last, logits_.data(), should_stop);
  if (std::ssize(tokens_) == (last + 1) * page) done_ = std::ssize(tokens_);
}

void Generator::clear() {
  tokens_.clear();
  done_ = 0;
}

std::int32_t choose_token(std::span<const float> logits, double temperature, std::uint64_t seed,
                          std::int64_t position) {
  LS_CHECK(!logits.empty() && temperature >= 0, "{} logits, temperature {}", logits.size(),
           temperature);
  if (const auto bad = std::ranges::find_if(logits, [](float x) { return !std::isfinite(x); });
      bad != logits.end())
    throw Error(fmt::format("the logit of token {} at position {} is {}", bad - logits.begin(),
                            position, *bad),
                "the model's activations overflow: compute in f32, or check its weights");
  const auto best = std::ranges::max_element(logits);  // the first of equals
  if (temperature == 0) return static_cast<std::int32_t>(best - logits.begin());
  const auto weight = [&](float logit) {
    return std::exp((static_cast<double>(logit) - static_cast<double>(*best)) / temperature);
  };
  double total = 0;
  for (const float logit : logits) total += weight(logit);
  double left = Random(seed, static_cast<std::uint64_t>(position)).uniform() * total;
  for (std::size_t i = 0; i < logits.size(); ++i)
    if ((left -= weight(logits[i])) < 0) return static_cast<std::int32_t>(i);
  // Only rounding of the differences leads here: nothing is left for the last one.
  return static_cast<std::int32_t>(best - logits.begin());
}

std::vector<std::int32_t> generate(Generator& generator, const GenerateOptions& options,
                                   const std::function<void(std::int32_t)>& on_token,
                                   const std::function<bool()>& should_stop) {
  LS_CHECK(!generator.tokens().empty(), "nothing to continue by {} tokens", options.count);
  std::vector<std::int32_t> made;
  while (std::ssize(made) < options.count) {
    if (!made.empty()) generator.extend(std::span(&made.back(), 1), should_stop);
    const std::int32_t token = choose_token(generator.logits(), options.temperature, options.seed,
                                            std::ssize(generator.tokens()));
    made.push_back(token);
    if (on_token) on_token(token);
    if (std::ranges::find(options.stop, token) != options.stop.end()) break;
  }
  return made;
}

}  // namespace longstride
