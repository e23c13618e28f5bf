#include "train/outlook.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/sizes.h"
#include "train/remedies.h"
#include "train/run_memory.h"

namespace longstride {
namespace {

constexpr std::array<const char*, kRetainedKinds> kKinds = {"input", "q",    "attention",
                                                            "mid",   "gate", "up"};

struct Refusal {
  std::string problem, hint;
};

// Why the run does not fit; nothing if it does. Completes a plan of shapes.
std::optional<Refusal> refusal(RunPlan& plan, Device& device, const MachineRates& rates,
                               Effort effort) {
  try {
    plan_memory(plan, device, rates, effort);
    check_fits(plan);
    return std::nullopt;
  } catch (const Error& e) {
    return Refusal{e.what(), e.hint()};
  }
}

bool fits(const TrainConfig& config, Device& device, const MachineRates& rates) {
  RunPlan plan = plan_shapes(config, device);
  return !refusal(plan, device, rates, Effort::kFit);
}

}  // namespace

UpdateBytes update_bytes(const RunNeeds& n) {
  const auto d = [](std::int64_t bytes) { return static_cast<double>(bytes); };
  const bool offloaded = n.optimizer_host + n.optimizer_disk > 0;
  return {.weights = d(n.weights),
          .gradients = d(n.gradients),
          .state_device = offloaded ? 0 : d(n.optimizer),
          .state_host = d(n.optimizer_host),
          .state_disk = d(n.optimizer_disk)};
}

RetentionShares retention_shares(const StepPlan& plan) {
  RetentionShares shares;
  const std::int64_t layers = std::ssize(plan.schedule.windows),
                     recomputed = std::max<std::int64_t>(
                         0, plan.layout().chunks() - plan.schedule.keep_chunks);
  const double one = 1.0 / static_cast<double>(std::max<std::int64_t>(1, recomputed * layers));
  for (std::int64_t c = 0; c < recomputed; ++c)
    for (std::int64_t l = 0; l < layers; ++l)
      for (std::size_t k = 0; k < kKinds.size(); ++k) {
        const auto kind = static_cast<Retained>(k);
        if (plan.schedule.retained(c, l).has(kind)) shares.kept[k] += one;
        if (plan.schedule.saved(c, l).has(kind)) shares.swapped[k] += one;
      }
  return shares;
}

std::string describe_shares(const std::array<double, kRetainedKinds>& shares) {
  std::vector<std::string> parts;
  for (std::size_t k = 0; k < kKinds.size(); ++k)
    if (shares[k] > 0.0005) parts.push_back(fmt::format("{} {:.0f}%", kKinds[k], 100 * shares[k]));
  return parts.empty() ? "nothing" : fmt::format("{}", fmt::join(parts, ", "));
}

double Outlook::tokens_per_s() const {
  return batch() * static_cast<double>(context()) / seconds();
}

double Outlook::utilization() const {
  return step.utilization * batch() * step.total() / seconds();
}

double Outlook::price_per_million(double price_per_hour) const {
  return price_per_hour / 3600 * 1e6 / tokens_per_s();
}

std::optional<double> predict_training_step(const RunPlan& plan, const MachineRates& rates) {
  if (!plan.step || rates.compute != plan.numerics.compute) return std::nullopt;
  const double sequence =
      predict_step(plan.part.config, plan.part.numerics, *plan.step, rates).total();
  return static_cast<double>(plan.config.training.batch) * sequence +
         predict_update(update_bytes(plan.needs), rates);
}

namespace {

// Without remedies if it does not fit.
Outlook outlook_of(const TrainConfig& config, Device& device, const MachineRates& rates) {
  Outlook outlook;
  outlook.plan = plan_shapes(config, device);
  if (const auto refused = refusal(outlook.plan, device, rates, Effort::kBest)) {
    outlook.problem = refused->problem;
    outlook.hint = refused->hint;
    return outlook;
  }
  const RunPlan& plan = outlook.plan;
  outlook.step = predict_step(plan.part.config, plan.part.numerics, *plan.step, rates);
  outlook.update_seconds = predict_update(update_bytes(plan.needs), rates);
  outlook.shares = retention_shares(*plan.step);
  return outlook;
}

}  // namespace

Outlook make_outlook(const TrainConfig& config, Device& device, const MachineRates& rates) {
  Outlook outlook = outlook_of(config, device, rates);
  if (outlook.fits()) return outlook;
  Remedies found = find_remedies(config, outlook.plan.numerics.chunk_tokens, device, rates);
  if (found.settings.empty()) return outlook;
  Outlook changed = outlook_of(found.config, device, rates);
  if (!changed.fits()) return outlook;
  outlook.remedies = std::move(found.settings);
  outlook.changed = std::make_shared<Outlook>(std::move(changed));
  return outlook;
}

namespace {

// The chunk depends on the context: that of what fits with short ones is the one to search with.
std::optional<std::int64_t> longest_with_auto(TrainConfig config, Device& device,
                                              const MachineRates& rates) {
  config.training.chunk = std::max<std::int64_t>(1024, config.training.page);
  const std::optional<std::int64_t> longest = longest_context(config, device, rates);
  if (!longest) return std::nullopt;
  config.training.context = *longest;
  config.training.chunk.reset();
  config.training.chunk = plan_shapes(config, device).config.training.chunk;
  return longest_context(config, device, rates);
}

}  // namespace

std::optional<std::int64_t> longest_context(const TrainConfig& config, Device& device,
                                            const MachineRates& rates) {
  if (!config.training.chunk) return longest_with_auto(config, device, rates);
  TrainConfig quick = config;
  const std::int64_t chunk = *config.training.chunk;
  const auto chunks_fit = [&](std::int64_t chunks) {
    quick.training.context = chunks * chunk;
    return fits(quick, device, rates);
  };
  if (!chunks_fit(1)) return std::nullopt;
  std::int64_t good = 1, bad = 2;
  while (bad * chunk <= kMostPlannedTokens && chunks_fit(bad)) {
    good = bad;
    bad *= 2;
  }
  // To about one percent.
  while (bad - good > std::max<std::int64_t>(1, good / 100)) {
    const std::int64_t middle = good + (bad - good) / 2;
    (chunks_fit(middle) ? good : bad) = middle;
  }
  return good * chunk;
}

}  // namespace longstride
