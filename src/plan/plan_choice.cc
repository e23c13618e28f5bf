#include "plan/plan_choice.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/error.h"
#include "plan/step_cost.h"

namespace longstride {
namespace {

class Chooser {
 public:
  Chooser(const PlannerOf& planner_of, const ModelConfig& config, const NumericsRecord& numerics,
          const StepOptions& options, StepLimits limits, MachineRates rates)
      : planner_of_(planner_of),
        config_(config),
        numerics_(numerics),
        options_(options),
        limits_(std::move(limits)),
        rates_(std::move(rates)),
        recompute_{.products = rates_.products.peak,
                   .attention = rates_.attention.earlier_forward,
                   .copies = std::min(rates_.copies.from_host, rates_.copies.to_host)} {
    // Whatever the step computes in: how parts compare is what matters here.
    rates_.compute = numerics.compute;
    options_.across_episodes.clear();
    options_.offloaded.clear();
  }

  // An episode that retains less for its own backward pass leaves memory to the others.
  ChosenPlan choose() {
    ChosenPlan best;
    double least = std::numeric_limits<double>::infinity();
    for (const Retention within : choices_within_episode(options_.within_episode)) {
      options_.within_episode = within;
      try {
        ChosenPlan other = choose_pages();
        const double time = seconds(other);
        if (time >= least) continue;
        best = std::move(other);
        least = time;
      } catch (const Error&) {
        // With a smaller workspace it may fit; if nothing does, the last one tells.
        if (within == Retention{Retained::kInput} && std::isinf(least)) throw;
      }
    }
    return best;
  }

  // Activations get what pages as told leave.
  ChosenPlan retaining_beside(const PageBudget& pages) const {
    return retaining(planner_of_(options_).plan(pages), pages);
  }

 private:
  ChosenPlan choose_pages() {
    const StepPlanner plain = planner_of_(options_);
    const StepPlan resident = plain.plan({});
    const std::int64_t besides = resident.memory.total() - pages_in(resident);
    const bool all_fit = resident.memory.total() <= limits_.device;
    const PageBudget most = all_fit ? PageBudget{} : pages(limits_.device - besides);
    ChosenPlan staying = retaining(all_fit ? resident : plain.plan(most), most);
    const std::int64_t enough = streaming_bytes(plain, staying.plan);
    if (enough >= pages_in(staying.plan)) return staying;
    ChosenPlan streaming = retaining(plain.plan(pages(enough)), pages(enough));
    streaming = give_rest_to_pages(std::move(streaming));
    return seconds(streaming) < seconds(staying) ? std::move(streaming) : std::move(staying);
  }

  static std::int64_t pages_in(const StepPlan& plan) {
    return plan.memory.kv_pages + plan.memory.kv_gradient_pages;
  }
  double seconds(const ChosenPlan& chosen) const {
    return predict_step(config_, numerics_, chosen.plan, rates_).total();
  }
  // Enough to stream pages, without more of them on disk than in `before` (a disk is slower than
  // the arithmetic), and with what must not go there in host memory.
  std::int64_t streaming_bytes(const StepPlanner& planner, const StepPlan& before) const {
    const auto suffices = [&](std::int64_t bytes) {
      try {
        return planner.plan(pages(bytes)).memory.disk_pages <= before.memory.disk_pages;
      } catch (const Error&) {
        return false;
      }
    };
    constexpr std::int64_t kPrecision = std::int64_t{64} << 20;
    std::int64_t least = planner.streaming_page_bytes(), enough = pages_in(before);
    if (least >= enough || suffices(least)) return least;
    while (enough - least > kPrecision) {
      const std::int64_t bytes = least + (enough - least) / 2;
      (suffices(bytes) ? enough : least) = bytes;
    }
    return enough;
  }
  PageBudget pages(std::int64_t device) const {
    PageBudget budget = limits_;
    budget.device = device;
    return budget;
  }

  // Activations get what `begin` leaves.
  ChosenPlan retaining(StepPlan begin, const PageBudget& pages) const {
    ChosenPlan chosen{std::move(begin), {}};
    // Retaining changes the workspace: by how much is known afterwards.
    const std::int64_t host = host_left(chosen.plan);
    std::int64_t bytes = std::max<std::int64_t>(0, limits_.device - chosen.plan.memory.total());
    while (bytes > 0 || host > 0) {
      chosen.retention = choose_retention(
          config_, numerics_, chosen.plan.layout(), options_.keep_chunks, {bytes, host}, recompute_,
          chosen.plan.schedule.first_trained_layer, options_.stage.heads);
      if (chosen.retention.bytes + chosen.retention.host_bytes == 0) break;
      chosen.plan = planner(chosen.retention).plan(pages);
      const std::int64_t excess = chosen.plan.memory.total() - limits_.device;
      if (excess <= 0) return chosen;
      if (chosen.retention.bytes == 0) break;
      bytes = std::max<std::int64_t>(0, chosen.retention.bytes - excess);
    }
    chosen.retention = {};
    chosen.plan = planner_of_(options_).plan(pages);
    return chosen;
  }

  StepPlanner planner(const RetentionChoice& retention) const {
    StepOptions options = options_;
    options.across_episodes = retention.across_episodes;
    options.offloaded = retention.offloaded;
    return planner_of_(options);
  }

  // For activations.
  std::int64_t host_left(const StepPlan& plan) const {
    const std::int64_t free =
        limits_.host == PageBudget::kAll ? limits_.activations : limits_.host - plan.memory.host();
    return std::clamp<std::int64_t>(free, 0, limits_.activations);
  }

  ChosenPlan give_rest_to_pages(ChosenPlan chosen) const {
    const std::int64_t rest = limits_.device - chosen.plan.memory.total();
    if (rest > 0) chosen.plan = planner(chosen.retention).plan(pages(pages_in(chosen.plan) + rest));
    return chosen;
  }

  const PlannerOf& planner_of_;
  const ModelConfig& config_;
  const NumericsRecord& numerics_;
  StepOptions options_;
  StepLimits limits_;
  MachineRates rates_;
  const RecomputeRates recompute_;
};

}  // namespace

ChosenPlan choose_plan(const PlannerOf& planner_of, const ModelConfig& config,
                       const NumericsRecord& numerics, const StepOptions& options,
                       const StepLimits& limits, const MachineRates& rates) {
  LS_CHECK(limits.device >= 0, "{} bytes on the device", limits.device);
  return Chooser(planner_of, config, numerics, options, limits, rates).choose();
}

ChosenPlan retain_beside(const PageBudget& pages, const PlannerOf& planner_of,
                         const ModelConfig& config, const NumericsRecord& numerics,
                         const StepOptions& options, std::int64_t device_bytes,
                         const MachineRates& rates) {
  return Chooser(planner_of, config, numerics, options, StepLimits{{.device = device_bytes}}, rates)
      .retaining_beside(pages);
}

}  // namespace longstride
