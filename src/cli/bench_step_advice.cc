#include "cli/bench_step_advice.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"
#include "base/sizes.h"
#include "plan/this_machine.h"
#include "train/run_memory.h"

namespace longstride::cli {
namespace {

std::string text(std::int64_t bytes) { return format_bytes(static_cast<double>(bytes)); }

}  // namespace

ChosenPlan StepOfEngine::choose(const StepLimits& limits) const {
  return choose_plan([&](const StepOptions& with) { return planner(with); }, engine.config(),
                     numerics, options, limits, rates_of_this_machine(engine.device()));
}

std::int64_t StepOfEngine::other_bytes() const {
  Device& device = engine.device();
  if (device.shares_host_memory()) return 0;
  const std::int64_t libraries =
      library_bytes(device, engine.config(), numerics, options.max_tokens);
  return libraries + device_budget(device, std::nullopt, libraries).reserve;
}

StepLimits limits_of_machine(const Device& device) {
  const bool own_memory = !device.shares_host_memory();
  // Libraries allocate at their first call.
  constexpr std::int64_t kReserve = std::int64_t{2} << 30;
  const std::int64_t host = own_memory ? less_a_reserve(device.available_host_bytes()) : 0;
  return {
      {.device = std::max<std::int64_t>(0, device.available_bytes() - (own_memory ? kReserve : 0)),
       .host = host},
      activations_of(host)};
}

std::string size_option(std::int64_t bytes) {
  constexpr std::array<const char*, 5> kUnits = {"", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  double value = static_cast<double>(bytes);
  for (; value >= 1024 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  return fmt::format("{:g}{}", std::ceil(10 * value) / 10, kUnits[unit]);
}

// Episodes that retain least for their own backward pass have the smallest workspace, and more
// pages on the device need less room elsewhere.
std::int64_t least_device_bytes(const StepOfEngine& step, const PageBudget& elsewhere) {
  StepOptions options = step.options;
  options.within_episode = choices_within_episode(options.within_episode).back();
  const StepPlanner planner = step.planner(options);
  const StepMemory all = planner.plan({}).memory;
  const auto suffices = [&](std::int64_t bytes) {
    PageBudget pages = elsewhere;
    pages.device = bytes;
    try {
      planner.plan(pages);
      return true;
    } catch (const Error&) {
      return false;
    }
  };
  std::int64_t least = planner.least_page_bytes(), enough = all.kv_pages + all.kv_gradient_pages;
  const std::int64_t besides = step.fixed_bytes() + step.other_bytes() + all.total() - enough,
                     precision = (enough - least) / 1024 + 1;
  if (suffices(least)) return besides + least;
  while (enough - least > precision) {
    const std::int64_t bytes = least + (enough - least) / 2;
    (suffices(bytes) ? enough : least) = bytes;
  }
  return besides + enough;
}

std::string automatic_plan(const StepOfEngine& step, const std::string& subject) {
  const StepLimits limits = limits_of_machine(step.engine.device());
  try {
    const StepMemory m = step.choose(limits).plan.memory;
    std::string places = text(step.fixed_bytes() + m.total()) + " on the device";
    if (m.host() > 0) places += fmt::format(", {} in host memory", text(m.host()));
    const std::int64_t kept = m.retained + m.host_activations + m.disk_activations;
    return kept == 0
               ? fmt::format("{} would recompute all activations: {}", subject, places)
               : fmt::format("{} would keep {} of activations: {}", subject, text(kept), places);
  } catch (const Error&) {
    return fmt::format("{} would need {} on the device, and {} are there: {}", subject,
                       text(least_device_bytes(step, limits)),
                       text(step.fixed_bytes() + step.other_bytes() + limits.device), kSmallerStep);
  }
}

}  // namespace longstride::cli
