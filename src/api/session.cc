#include "api/session.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "device/other_work.h"
#include "plan/this_machine.h"
#include "tensor/stochastic_round.h"
#include "train/run_memory.h"

namespace longstride::api {
namespace {

// In place of what a loop of one's own has no use for.
constexpr std::array kPlaceholders = {"data.path=none", "training.steps=1",
                                      "checkpoint.directory=none"};
constexpr std::array<std::string_view, 6> kSections = {"model",     "lora",     "memory",
                                                       "optimizer", "numerics", "attention"};
constexpr std::array<std::string_view, 9> kKeys = {
    "training.context", "training.chunk",       "training.page",
    "training.seed",    "training.keep_chunks", "training.rebuild_feed_forward",
    "device.name",      "device.threads",       "model.path"};

TrainConfig config_of(const std::vector<std::string>& settings) {
  std::vector<std::string> all(kPlaceholders.begin(), kPlaceholders.end());
  for (const std::string& setting : settings) {
    const std::string_view key = std::string_view(setting).substr(0, setting.find('='));
    const std::string_view section = key.substr(0, key.find('.'));
    if (std::ranges::find(kSections, section) == kSections.end() &&
        std::ranges::find(kKeys, key) == kKeys.end())
      throw Error(fmt::format("{} is not a setting of an engine", key),
                  "settings are those of [model], [lora], [memory], [optimizer], [numerics] and "
                  "[attention], and context, chunk, page, seed, keep_chunks, "
                  "rebuild_feed_forward, device and threads");
    all.push_back(setting);
  }
  return parse_train_config("", "Engine", std::filesystem::current_path(), all);
}

std::vector<std::int32_t> next_tokens(std::span<const std::int32_t> tokens,
                                      std::span<const std::int64_t> documents) {
  std::vector<std::int32_t> targets(tokens.begin() + 1, tokens.end());
  targets.push_back(kNoTarget);
  for (const std::int64_t start : documents)
    if (start > 0) targets[static_cast<std::size_t>(start) - 1] = kNoTarget;
  return targets;
}

void check_documents(std::span<const std::int64_t> documents, std::int64_t tokens) {
  if (documents.front() != 0)
    throw Error(fmt::format("documents begin at {}", documents.front()),
                "the first document begins at 0");
  for (std::size_t i = 1; i < documents.size(); ++i)
    if (documents[i] <= documents[i - 1] || documents[i] >= tokens)
      throw Error(fmt::format("documents: {} comes after {} in a sequence of {} tokens",
                              documents[i], documents[i - 1], tokens),
                  "give where each document begins, ascending, without empty ones");
}

void check_values(const char* name, std::span<const std::int32_t> values, std::int64_t vocabulary,
                  bool may_be_negative) {
  for (std::size_t i = 0; i < values.size(); ++i)
    if (values[i] >= vocabulary || (values[i] < 0 && !may_be_negative))
      throw Error(
          fmt::format("{}[{}] is {}, and the vocabulary has {}", name, i, values[i], vocabulary),
          may_be_negative ? "give token ids, and a negative number where there is no target"
                          : "give token ids of the model's tokenizer");
}

void check_finite(const char* name, std::span<const float> values, std::size_t tokens) {
  if (!values.empty() && values.size() != tokens)
    throw Error(fmt::format("{} has {} entries for {} tokens", name, values.size(), tokens),
                "give one for every token; those of tokens without a target are not read");
  for (std::size_t i = 0; i < values.size(); ++i)
    if (!std::isfinite(values[i]))
      throw Error(fmt::format("{}[{}] is {}", name, i, values[i]), "give finite numbers");
}

}  // namespace

// A batch, checked, with everything that it left out.
struct Session::Prepared {
  std::vector<std::int32_t> targets;
  std::vector<std::int64_t> documents;
  SequenceInput input;
  double divisor = 1;
};

Session::Session(const std::vector<std::string>& settings)
    : thread_(std::this_thread::get_id()), process_(getpid()) {
  const TrainConfig config = config_of(settings);
  device_ = make_device(config.device.name);
  plan_ = plan_shapes(config, *device_);
  plan_.packed = plan_.interactive = true;
  plan_memory(plan_, *device_, rates_of_this_machine(*device_));
  check_fits(plan_);
  engine_ = std::make_unique<Engine>(*device_, plan_.model.config, plan_.model.specs);
  const auto seed = static_cast<std::uint64_t>(config.training.seed);
  if (plan_.model.directory)
    engine_->load(*plan_.model.directory);
  else
    engine_->initialize(seed);
  if (plan_.model.adapter_source)
    engine_->load_adapters(*plan_.model.adapter_source);
  else if (plan_.model.adapter)
    engine_->start_adapters(seed);
  engine_->prepare_optimizer(config.optimizer, plan_.state, seed);
  engine_->prepare_step(plan_.numerics, plan_.step.value());
  engine_->choose_kernels();
  engine_->record_losses();
  device_->stream().synchronize();
}

Session::~Session() = default;

void Session::enter() {
  if (getpid() != process_)
    throw Error("this engine belongs to the process that made it",
                "make one after a fork, or use multiprocessing's spawn");
  if (std::this_thread::get_id() != thread_)
    throw Error("this engine belongs to the thread that made it",
                "call it from there, or make an engine per thread");
  wait_for_other_work(*device_);
  fold_adapters(engine_->weights());  // others may have written A and B
}

void Session::check_whole() const {
  if (partial_)
    throw Error("the gradients are a partial sum, since a call was stopped",
                "zero them by zero_grad() first");
}

Session::Prepared Session::prepare(const Batch& batch, bool weighs) const {
  const std::int64_t T = std::ssize(batch.tokens), V = plan_.model.config.vocabulary;
  if (T < 2) throw Error(fmt::format("a sequence of {} tokens", T), "give at least two tokens");
  if (T > plan_.config.training.context)
    throw Error(fmt::format("a sequence of {} tokens is longer than the engine's context of {}", T,
                            plan_.config.training.context),
                "cut it, or make the engine with a longer context");
  check_values("tokens", batch.tokens, V, false);
  Prepared p;
  p.documents.assign(batch.documents.begin(), batch.documents.end());
  if (p.documents.empty()) p.documents = {0};
  check_documents(p.documents, T);
  if (batch.targets != nullptr && std::ssize(*batch.targets) != T)
    throw Error(fmt::format("{} targets for {} tokens", batch.targets->size(), T),
                "give the target of every token, a negative number where there is none");
  p.targets = batch.targets != nullptr ? *batch.targets : next_tokens(batch.tokens, p.documents);
  check_values("targets", p.targets, V, true);
  for (std::int32_t& target : p.targets)
    if (target < 0) target = kNoTarget;
  const auto size = static_cast<std::size_t>(T);
  check_finite("weights", batch.weights, size);
  check_finite("old_logprobs", batch.old_logprobs, size);
  if (!batch.old_logprobs.empty() && batch.weights.empty())
    throw Error("old_logprobs are given without weights",
                "give the advantage of every target as weights");
  if (!(batch.clip_below >= 0 && batch.clip_below <= 1 && batch.clip_above >= 0 &&
        std::isfinite(batch.clip_above)))
    throw Error(fmt::format("clip is ({}, {})", batch.clip_below, batch.clip_above),
                "ratios are clipped to [1 - a, 1 + b]: give a from 0 to 1 and b from 0");
  double sum = 0;
  bool negative = false, any = false;
  for (std::size_t t = 0; t < size; ++t) {
    if (p.targets[t] < 0) continue;
    any = true;
    sum += batch.weights.empty() ? 1.0 : static_cast<double>(batch.weights[t]);
    negative = negative || (!batch.weights.empty() && batch.weights[t] < 0);
  }
  if (!any) throw Error("no token has a target", "give at least one target that is not negative");
  if (!std::isfinite(batch.divisor))
    throw Error(fmt::format("divisor is {}", batch.divisor), "give a finite number");
  if (weighs && batch.divisor == 0 && negative)
    throw Error("a weight is negative and there is no divisor",
                "give the divisor: what the sum of weighted losses is divided by");
  if (weighs && batch.divisor == 0 && sum == 0)
    throw Error("the weights add up to 0", "give the divisor");
  p.divisor = batch.divisor != 0 ? batch.divisor : sum;
  p.input = {batch.tokens, p.targets, p.documents};
  p.input.weights = batch.weights;
  p.input.earlier = batch.old_logprobs;
  p.input.clip = {static_cast<float>(batch.clip_below), static_cast<float>(batch.clip_above)};
  p.input.rounding = mixed(static_cast<std::uint64_t>(plan_.config.training.seed), sequences_);
  p.input.drops = weighs;
  return p;
}

Outcome Session::outcome(const Prepared& prepared, const SequenceResult& result,
                         double divisor) const {
  Outcome outcome{result.loss_sum / divisor, result.targets, {}};
  const std::span<const float> losses = engine_->runner().losses();
  outcome.logprobs.reserve(losses.size());
  for (std::size_t t = 0; t < losses.size(); ++t)
    outcome.logprobs.push_back(prepared.targets[t] < 0 ? 0.0f : -losses[t]);
  return outcome;
}

SequenceResult Session::guarded(const std::function<SequenceResult()>& run) {
  partial_ = true;
  SequenceResult result = run();
  engine_->finish_gradients();  // others see the gradients after every call
  device_->stream().synchronize();
  partial_ = false;
  ++sequences_;
  return result;
}

namespace {

struct Polling {
  std::function<bool()> should_stop;
  OnSequenceProgress on_progress;
};

// Progress is told first, and what it answers stops before the task.
Polling polling(const Poll& poll) {
  if (!poll) return {};
  auto stop = std::make_shared<bool>(false);
  return {[stop] { return *stop; },
          [stop, poll](const SequenceProgress& progress) { *stop = *stop || poll(progress); }};
}

}  // namespace

Outcome Session::backward(const Batch& batch, const Poll& poll) {
  enter();
  check_whole();
  const Prepared p = prepare(batch, true);
  const Polling with = polling(poll);
  const SequenceResult result = guarded([&] {
    return engine_->backward(p.input, 1.0 / p.divisor, with.should_stop, with.on_progress);
  });
  return outcome(p, result, p.divisor);
}

Outcome Session::score(const Batch& batch, const Poll& poll) {
  enter();
  const Prepared p = prepare(batch, false);
  const Polling with = polling(poll);
  const SequenceResult result = engine_->evaluate(p.input, with.should_stop, with.on_progress);
  return outcome(p, result, p.divisor != 0 ? p.divisor : 1.0);
}

Outcome Session::backward_of(const Batch& batch, const WeightsOf& weights_of, const Poll& poll) {
  enter();
  check_whole();
  LS_CHECK(batch.weights.empty() && batch.old_logprobs.empty(), "weights beside a loss");
  const Prepared p = prepare(batch, true);
  const Polling with = polling(poll);
  std::vector<float> logprobs, weights;
  const SequenceResult result = guarded([&] {
    return engine_->backward_scored(
        p.input,
        [&](std::span<const float> losses) {
          for (std::size_t t = 0; t < losses.size(); ++t)
            logprobs.push_back(p.targets[t] < 0 ? 0.0f : -losses[t]);
          weights = weights_of(logprobs);
          check_finite("the gradient of the loss", weights, losses.size());
          return std::span<const float>(weights);
        },
        1.0, with.should_stop, with.on_progress);
  });
  return {result.loss_sum, result.targets, std::move(logprobs)};
}

void Session::zero_gradients() {
  enter();
  engine_->zero_gradients();
  device_->stream().synchronize();
  partial_ = false;
}

double Session::gradient_norm() {
  enter();
  return engine_->gradient_norm();
}

double Session::update(double learning_rate, std::optional<double> clip_norm) {
  enter();
  check_whole();
  if (!(learning_rate >= 0) || !std::isfinite(learning_rate))
    throw Error(fmt::format("lr is {}", learning_rate), "give a learning rate of 0 or more");
  const double norm = engine_->gradient_norm(),
               most = clip_norm.value_or(plan_.config.optimizer.clip_norm);
  if (!std::isfinite(norm))
    throw Error(fmt::format("the gradients are not finite: {}", engine_->first_nonfinite()),
                "nothing was updated; zero them by zero_grad()");
  ++updates_;
  engine_->update(learning_rate, most > 0 && norm > most ? most / norm : 1.0, updates_);
  device_->stream().synchronize();
  return norm;
}

void Session::save(const std::string& directory) {
  enter();
  const std::filesystem::path target = directory;
  std::error_code ignored;
  if (std::filesystem::exists(std::filesystem::symlink_status(target, ignored)))
    throw Error(fmt::format("{} exists already", directory), "name a new directory");
  DirectoryWriter writer(target);
  const ModelSource& model = plan_.model;
  write_weights(writer.path(), model.adapter ? &*model.adapter : nullptr, model.config,
                engine_->tensors(), model.side_files);
  writer.commit();
}

}  // namespace longstride::api
