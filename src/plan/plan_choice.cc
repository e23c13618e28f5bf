#include "plan/plan_choice.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace longstride {
namespace {

// What streaming all pages costs, as a share of the step. Measured on an H200, dense attention,
// 256K tokens: 2.1%.
constexpr double kStreamingCost = 0.021;

class Chooser {
 public:
  Chooser(const PlannerOf& planner_of, const ModelConfig& config, const NumericsRecord& numerics,
          const StepOptions& options, StepLimits limits, const RecomputeRates& rates)
      : planner_of_(planner_of),
        config_(config),
        numerics_(numerics),
        options_(options),
        limits_(std::move(limits)),
        rates_(rates) {
    options_.across_episodes.clear();
  }

  ChosenPlan choose() {
    const StepPlanner plain = planner_of_(options_);
    const StepPlan resident = plain.plan({});
    const std::int64_t besides = resident.memory.total() - pages_in(resident);
    const bool all_fit = resident.memory.total() <= limits_.device;
    ChosenPlan staying = all_fit ? retaining(resident, {})
                                 : ChosenPlan{plain.plan(pages(limits_.device - besides)), {}};
    const std::int64_t enough = streaming_bytes(plain, staying.plan);
    if (enough >= pages_in(staying.plan)) return staying;
    ChosenPlan streaming = retaining(plain.plan(pages(enough)), pages(enough));
    const double cost = all_fit ? streaming_cost() : 0;
    if (streaming.retention.saved_seconds <= staying.retention.saved_seconds + cost) return staying;
    return give_rest_to_pages(std::move(streaming));
  }

  // Activations get what pages as told leave.
  ChosenPlan retaining_beside(const PageBudget& pages) const {
    return retaining(planner_of_(options_).plan(pages), pages);
  }

 private:
  static std::int64_t pages_in(const StepPlan& plan) {
    return plan.memory.kv_pages + plan.memory.kv_gradient_pages;
  }
  double streaming_cost() const {
    return kStreamingCost * step_seconds(config_, numerics_, layout(), rates_);
  }
  SequenceLayout layout() const {
    return {options_.max_tokens, numerics_.chunk_tokens, numerics_.page_tokens, {0}};
  }
  // Enough to stream pages, without more of them on disk than in `before`: a disk is slower than
  // the arithmetic.
  std::int64_t streaming_bytes(const StepPlanner& planner, const StepPlan& before) const {
    std::int64_t bytes = planner.streaming_page_bytes();
    while (bytes < pages_in(before)) {
      PageBudget budget = pages(bytes);
      budget.disk = PageBudget::kAll;
      const std::int64_t more = planner.plan(budget).memory.disk_pages - before.memory.disk_pages;
      if (more <= 0) break;
      bytes += more;
    }
    return bytes;
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
    std::int64_t bytes = limits_.device - chosen.plan.memory.total();
    while (bytes > 0) {
      chosen.retention = choose_retention(config_, numerics_, chosen.plan.layout(),
                                          options_.keep_chunks, bytes, rates_);
      if (chosen.retention.bytes == 0) break;
      chosen.plan = planner(chosen.retention).plan(pages);
      const std::int64_t excess = chosen.plan.memory.total() - limits_.device;
      if (excess <= 0) return chosen;
      bytes = chosen.retention.bytes - excess;
    }
    chosen.retention = {};
    chosen.plan = planner_of_(options_).plan(pages);
    return chosen;
  }

  StepPlanner planner(const RetentionChoice& retention) const {
    StepOptions options = options_;
    options.across_episodes = retention.across_episodes;
    return planner_of_(options);
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
  const RecomputeRates& rates_;
};

}  // namespace

ChosenPlan choose_plan(const PlannerOf& planner_of, const ModelConfig& config,
                       const NumericsRecord& numerics, const StepOptions& options,
                       const StepLimits& limits, const RecomputeRates& rates) {
  LS_CHECK(limits.device >= 0, "{} bytes on the device", limits.device);
  return Chooser(planner_of, config, numerics, options, limits, rates).choose();
}

ChosenPlan retain_beside(const PageBudget& pages, const PlannerOf& planner_of,
                         const ModelConfig& config, const NumericsRecord& numerics,
                         const StepOptions& options, std::int64_t device_bytes,
                         const RecomputeRates& rates) {
  return Chooser(planner_of, config, numerics, options, {.device = device_bytes}, rates)
      .retaining_beside(pages);
}

}  // namespace longstride
