#include "train/run_memory.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "plan/plan_choice.h"
#include "plan/stage_spread.h"
#include "plan/step_cost.h"
#include "train/group_sums.h"
#include "train/optimizer.h"
#include "train/outlook.h"
#include "train/run_ranks.h"
#include "train/step.h"

namespace longstride {
namespace {

// This process's share of the free host memory.
std::int64_t free_host(const RunPlan& plan, const Device& device) {
  return device.available_host_bytes() / plan.place.on_host;
}

// The same, less what the run takes on a device that shares it.
std::int64_t host_left(const RunPlan& plan, const Device& device) {
  return std::max<std::int64_t>(
      0, free_host(plan, device) - (device.shares_host_memory() ? plan.needs.total() : 0));
}

// Reserve on a device for allocations on demand: lists of attention over very long contexts have up
// to 16 buffers of some MiB each, kernels are loaded at their first use (libraries', and those that
// cuDNN makes for a new length), and every allocation is rounded up to 2 MiB. `total` is all memory
// of the device.
std::int64_t device_reserve(std::int64_t total) {
  constexpr std::int64_t kLeast = std::int64_t{1} << 30, kShare = 100;
  return std::max(kLeast, total / kShare);
}

// Host budget less `others`, for pages or for a state that may go to disk.
std::int64_t host_budget(const RunPlan& plan, const Device& device, std::int64_t others) {
  if (plan.config.memory.host) return *plan.config.memory.host / plan.place.on_host - others;
  if (device.shares_host_memory()) return 0;
  return less_a_reserve(std::max<std::int64_t>(0, free_host(plan, device) - others));
}

// If memory.host is set, pages get all of it, and the state's host memory is not counted in it.
std::int64_t host_for_pages(const RunPlan& plan, const Device& device) {
  return host_budget(plan, device, plan.config.memory.host ? 0 : plan.needs.optimizer_host);
}

std::int64_t disk_budget(const MemoryConfig& memory) {
  if (memory.disk_path.empty()) {
    if (memory.disk.value_or(0) > 0)
      throw Error("memory.disk is set and memory.disk_path is not",
                  "name a directory on a local disk as memory.disk_path");
    if (memory.optimizer == "disk")
      throw Error("memory.optimizer is \"disk\" and memory.disk_path is not set",
                  "name a directory on a local disk as memory.disk_path");
  }
  if (memory.disk || memory.disk_path.empty()) return memory.disk.value_or(0);
  std::error_code error;
  const std::filesystem::space_info space = std::filesystem::space(memory.disk_path, error);
  if (error)
    throw Error(fmt::format("memory.disk_path {}: {}", memory.disk_path.string(), error.message()),
                "name a directory on a local disk as memory.disk_path");
  return less_a_reserve(static_cast<std::int64_t>(space.available));
}

void place_optimizer(RunPlan& plan, StatePlace place, std::int64_t host_bytes = 0) {
  plan.state.place = place;
  plan.state.host_bytes = host_bytes;
  const StateBytes bytes =
      Optimizer::bytes_needed(plan.part.parameters, plan.config.optimizer, plan.state);
  plan.needs.optimizer = bytes.device;
  plan.needs.optimizer_host = bytes.host;
  plan.needs.optimizer_disk = bytes.disk;
}

// With memory.optimizer = auto, if the run does not fit, offloads the optimizer's state if it fits
// elsewhere: to host memory and disk if there is a disk, else to host memory.
void relieve_device(RunPlan& plan, const Device& device) {
  RunNeeds& needs = plan.needs;
  if (plan.config.memory.optimizer != "auto" || plan.state.place != StatePlace::kDevice ||
      needs.total() <= needs.available)
    return;
  if (needs.disk_available > 0) {
    place_optimizer(plan, StatePlace::kDisk);
    if (needs.optimizer_disk <= needs.disk_available + host_budget(plan, device, 0)) return;
  }
  place_optimizer(plan, StatePlace::kHost);
  if (needs.optimizer_host > host_left(plan, device)) place_optimizer(plan, StatePlace::kDevice);
}

// A state that may go to disk gets the host memory that pages leave.
void split_state(RunPlan& plan, const Device& device) {
  if (plan.state.place != StatePlace::kDisk) return;
  place_optimizer(plan, StatePlace::kDisk,
                  std::max<std::int64_t>(0, host_budget(plan, device, plan.needs.step.host())));
  if (plan.needs.optimizer_disk == 0) plan.state.place = StatePlace::kHost;
}

StepOptions step_options(const RunPlan& plan, Effort effort) {
  const TrainingConfig& training = plan.config.training;
  return {.max_tokens = training.context,
          .keep_chunks = training.keep_chunks,
          .within_episode = within_episode(training.rebuild_feed_forward),
          .packed = plan.packed,
          .evaluates = plan.evaluates || plan.eval_samples != nullptr || plan.interactive,
          .scores = plan.interactive,
          .weighted = plan.weighted || plan.interactive,
          .stage = plan.part.stage,
          .quick = effort == Effort::kQuick};
}

StatePlace first_place(const std::string& wanted) {
  return wanted == "host"   ? StatePlace::kHost
         : wanted == "disk" ? StatePlace::kDisk
                            : StatePlace::kDevice;
}

}  // namespace

std::int64_t less_a_reserve(std::int64_t free) {
  constexpr std::int64_t kReserve = std::int64_t{4} << 30;
  return std::max<std::int64_t>(0, free - std::max(kReserve, free / 20));
}

DeviceBudget device_budget(const Device& device, std::optional<std::int64_t> wanted,
                           std::int64_t libraries, std::int64_t sharers) {
  const std::int64_t free = device.available_bytes() / sharers;
  if (device.shares_host_memory()) return {std::min(free, wanted.value_or(free)), 0};
  const std::int64_t reserve = device_reserve(device.used_bytes() + device.available_bytes());
  const std::int64_t left = free - (device.kind() == DeviceKind::kShapes ? libraries : 0);
  const std::int64_t available =
      wanted ? std::min(left, *wanted - reserve - libraries) : left - reserve;
  return {std::max<std::int64_t>(0, available), std::min(free, reserve)};
}

namespace {

// What pages and activations may take beside a state that may go to disk: to host memory first, or
// to disk first.
PageBudget beside_state(PageBudget away, const RunPlan& plan, bool host_first) {
  const StepMemory& step = plan.needs.step;
  const auto left = [](std::int64_t bytes) { return std::max<std::int64_t>(0, bytes); };
  const std::int64_t state = plan.needs.optimizer_disk, host = left(away.host - step.host()),
                     disk = left(away.disk - step.disk()),
                     on_host = host_first ? std::min(state, host) : left(state - disk);
  away.host -= std::min(host, on_host);
  away.disk -= std::min(disk, state - on_host);
  return away;
}

// Lets activations stay that are worth it, if the run fits without them.
void retain_activations(RunPlan& plan, const Device& device, const PlannerOf& planner_of,
                        const StepOptions& options, const PageBudget& away,
                        const MachineRates& rates) {
  RunNeeds& needs = plan.needs;
  const std::string& activations = plan.config.memory.activations;
  if (activations == "recompute" || needs.total() > needs.available) return;
  const std::int64_t left = needs.available - needs.total();
  StepLimits limits{away, activations == "auto" ? activations_of(away.host) : 0};
  // Other programs want memory too.
  limits.device = needs.available - needs.fixed() - (device.shares_host_memory() ? left / 2 : 0);
  ChosenPlan chosen =
      choose_plan(planner_of, plan.part.config, plan.part.numerics, options, limits, rates);
  plan.step = std::move(chosen.plan);
  needs.step = plan.step->memory;
  needs.saved_flops = chosen.retention.saved_flops;
}

double predicted_seconds(const RunPlan& plan, const MachineRates& rates) {
  return static_cast<double>(plan.config.training.batch) *
             predict_step(plan.part.config, plan.part.numerics, *plan.step, rates).total() +
         predict_update(update_bytes(plan.needs), rates);
}

// Calls retain(what pages and activations may take) with either order of the state's places, and
// keeps what is faster: activations in host memory save arithmetic, the state there saves time of
// the disk.
template <class F>
void retain_beside_state(RunPlan& plan, const PageBudget& away, const MachineRates& rates,
                         const F& retain) {
  const std::optional<StepPlan> step = plan.step;
  const RunNeeds needs = plan.needs;
  const StateOptions state = plan.state;
  retain(beside_state(away, plan, true));
  const double host_first = predicted_seconds(plan, rates);
  std::optional<StepPlan> first_step = std::exchange(plan.step, step);
  const RunNeeds first_needs = std::exchange(plan.needs, needs);
  StateOptions first_state = std::exchange(plan.state, state);
  retain(beside_state(away, plan, false));
  if (predicted_seconds(plan, rates) < host_first) return;
  plan.step = std::move(first_step);
  plan.needs = first_needs;
  plan.state = std::move(first_state);
}

// Places the pages of a step planned so: all on the device, or, if they do not fit, with the memory
// left for them there.
void place_pages(RunPlan& plan, const Device& device, const StepPlanner& planner,
                 PageBudget budget) {
  RunNeeds& needs = plan.needs;
  plan.step = planner.plan({});
  needs.step = plan.step->memory;
  relieve_device(plan, device);
  if (needs.total() <= needs.available || budget.host + budget.disk == 0) return;
  budget.device = needs.available - needs.fixed() - needs.step.workspace - needs.step.retained -
                  needs.step.summaries - needs.step.wide_pages - needs.step.rope;
  if (budget.device <= 0) return;              // no page makes a difference
  budget.host = host_for_pages(plan, device);  // less the optimizer's state, if offloaded
  plan.step = planner.plan(budget);
  needs.step = plan.step->memory;
}

// A plan lists every layer of every chunk, and the pages that a chunk visits.
void check_plannable(const RunPlan& plan) {
  const std::int64_t context = plan.config.training.context, chunk = plan.numerics.chunk_tokens,
                     chunks = (context + chunk - 1) / chunk, layers = plan.part.config.layers;
  if (context > kMostPlannedTokens)
    throw Error(fmt::format("a context of {} tokens is too long to plan: at most {}", context,
                            kMostPlannedTokens),
                "shorten training.context");
  if (chunks > kMostPlaces / layers)
    throw Error(fmt::format("{} chunks of {} tokens, in each of {} layers, are too many to plan",
                            chunks, chunk, layers),
                fmt::format("make training.chunk larger (at least {}), or shorten training.context",
                            (context / (kMostPlaces / layers) / plan.config.training.page + 1) *
                                plan.config.training.page));
}

// Returns the options of the plan. Episodes retain less for their own backward pass only if the
// step does not fit otherwise.
StepOptions fit_step(RunPlan& plan, const Device& device, const PlannerOf& planner_of,
                     const PageBudget& budget, Effort effort) {
  StepOptions asked = step_options(plan, effort);
  const RunNeeds before = plan.needs;
  const StateOptions state = plan.state;
  const auto place = [&](const StepOptions& options) {
    plan.needs = before;
    plan.state = state;
    place_pages(plan, device, planner_of(options), budget);
    return plan.needs.total() <= plan.needs.available;
  };
  const bool may_retain_less = plan.config.memory.activations != "recompute";
  if (may_retain_less)
    for (const Retention within : choices_within_episode(asked.within_episode)) {
      StepOptions options = asked;
      options.within_episode = within;
      try {
        if (place(options)) return options;
      } catch (const Error&) {
        // The options as asked for tell what is wrong, below.
      }
    }
  place(asked);
  return asked;
}

}  // namespace

namespace {

void check_heads(const RunPlan& plan) {
  const std::int64_t heads = plan.place.heads, kv_heads = plan.model.config.kv_heads;
  if (heads == 1) return;
  if (kv_heads % heads != 0)
    throw Error(fmt::format("parallel.heads is {} and the model has {} KV heads", heads, kv_heads),
                fmt::format("set parallel.heads to a divisor of {}", kv_heads));
}

}  // namespace

void check_place(const RunPlan& plan) {
  const std::int64_t stages = plan.place.stages, layers = plan.model.config.layers;
  check_heads(plan);
  if (stages > layers)
    throw Error(fmt::format("parallel.pipeline is {} and the model has {} layers", stages, layers),
                fmt::format("set parallel.pipeline to at most {}", layers));
}

namespace {

// The whole model, or the layers of a stage. All who share heads have the same plan.
void cut_model(RunPlan& plan) {
  const ModelSource& model = plan.model;
  const std::int64_t stages = plan.place.stages;
  check_place(plan);
  if (stages == 1) {
    plan.cuts = {0, model.config.layers};
    plan.part = {{}, model.config, model.specs, plan.numerics};
    plan.part.stage.heads.ranks = plan.place.heads;
    return;
  }
  plan.cuts = spread_layers(model.config, plan.numerics, plan.config.training.context, stages);
  const auto at = static_cast<std::size_t>(plan.place.stage);
  plan.part =
      stage_parts(model.config, model.specs, plan.numerics, plan.cuts[at], plan.cuts[at + 1]);
  plan.part.stage.heads.ranks = plan.place.heads;
}

}  // namespace

void plan_memory(RunPlan& plan, Device& device, const MachineRates& rates, Effort effort) {
  RunNeeds& needs = plan.needs;
  cut_model(plan);
  const ModelConfig& model = plan.part.config;
  const std::vector<ParameterSpec>& parameters = plan.part.parameters;
  const NumericsRecord& numerics = plan.part.numerics;
  const MemoryConfig& memory = plan.config.memory;
  const std::int64_t context = plan.config.training.context;
  needs.disk_available = disk_budget(memory) / plan.place.on_host;
  needs.weights = ParameterSet::bytes_needed(parameters);
  needs.gradients =
      ParameterSet::gradient_bytes_needed(parameters) + RunRanks::group_sums_bytes(plan).device;
  const PortBytes messages = RunRanks::message_memory(plan, device);
  const bool shares_memory = device.shares_host_memory();
  needs.messages = shares_memory ? 0 : messages.host;
  needs.messages_device = messages.device + (shares_memory ? messages.host : 0);
  plan.state.disk_directory = memory.disk_path;
  plan.state.shards = plan.place.shards;
  plan.state.shard = plan.place.shard;
  place_optimizer(plan, first_place(memory.optimizer));
  const HeadShare& heads = plan.part.stage.heads;
  reserve_libraries(device, model, numerics, context, heads);
  const DeviceBudget on_device =
      device_budget(device, memory.gpu, library_bytes(device, model, numerics, context, heads),
                    device.shares_host_memory() ? plan.place.on_host : plan.place.on_device);
  needs.available = on_device.available;
  needs.device_reserve = on_device.reserve;
  // The schedule of a context that is far too long would itself fill the memory.
  needs.step.kv_pages = kv_bytes_needed(model, numerics, context, heads);
  relieve_device(plan, device);
  PageBudget budget{.host = host_for_pages(plan, device), .disk = needs.disk_available};
  budget.disk_directory = memory.disk_path;
  needs.step_planned = needs.total() <= needs.available + budget.host + budget.disk;
  if (needs.step_planned) {
    check_plannable(plan);
    const PlannerOf planner_of = [&](const StepOptions& with) {
      return StepPlanner(device, model, parameters, numerics, with);
    };
    const StepOptions options = fit_step(plan, device, planner_of, budget, effort);
    budget.host = host_for_pages(plan, device);
    const auto retain = [&](const PageBudget& away) {
      if (effort == Effort::kBest)
        retain_activations(plan, device, planner_of, options, away, rates);
      split_state(plan, device);
    };
    if (plan.state.place == StatePlace::kDisk && !memory.host)
      retain_beside_state(plan, budget, rates, retain);
    else
      retain(budget);
  } else {
    relieve_device(plan, device);
    split_state(plan, device);
  }
  needs.host_available = host_left(plan, device);
}

}  // namespace longstride
