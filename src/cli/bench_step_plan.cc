#include "cli/bench_step_plan.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "base/sizes.h"
#include "cli/bench_step_advice.h"
#include "plan/plan_file.h"
#include "plan/this_machine.h"

namespace longstride::cli {
namespace {

std::string text(std::int64_t bytes) { return format_bytes(static_cast<double>(bytes)); }

// Bytes, or a word: "least" is the largest working set, "streaming" is enough to overlap copies
// with compute.
std::int64_t page_memory(const StepBenchOptions& o, const StepPlanner& planner) {
  if (o.page_memory == "least") return planner.least_page_bytes();
  if (o.page_memory == "streaming") return planner.streaming_page_bytes();
  try {
    return parse_size(o.page_memory, "--page-memory");
  } catch (const Error& e) {
    throw Error(e.what(), e.hint() + "; or least, or streaming");
  }
}

PageBudget pages_of(const StepBenchOptions& o, const StepPlanner& planner) {
  if (o.page_memory.empty()) return {};
  PageBudget pages{page_memory(o, planner),
                   o.host_memory.empty() ? std::int64_t{PageBudget::kAll}
                                         : parse_size(o.host_memory, "--host-memory"),
                   disk_memory(o).value_or(0), o.disk_path};
  if (pages.disk > 0 && o.disk_path.empty())
    throw Error("--disk-memory without --disk-path", "name a directory on a local disk");
  return pages;
}

// What --plan auto may use beside weights and gradients; --gpu-memory may be less than they take.
StepLimits limits_of(const StepBenchOptions& o, const StepOfEngine& step) {
  const Device& device = step.engine.device();
  StepLimits limits = limits_of_machine(device);
  limits.disk = disk_memory(o).value_or(0);
  limits.disk_directory = o.disk_path;
  if (!o.host_memory.empty()) limits.host = parse_size(o.host_memory, "--host-memory");
  limits.activations = activations_of(limits.host);
  if (!o.activation_memory.empty()) {
    limits.activations = parse_size(o.activation_memory, "--activation-memory");
    // A device that shares host memory has no other for pages.
    if (device.shares_host_memory() && o.host_memory.empty()) limits.host = limits.activations;
  }
  if (!o.gpu_memory.empty())
    limits.device = std::min(limits.device, parse_size(o.gpu_memory, "--gpu-memory") -
                                                step.fixed_bytes() - step.other_bytes());
  return limits;
}

// The least host memory beside the disk that is allowed, nearly; `all` is enough.
std::int64_t least_host_bytes(const StepPlanner& planner, PageBudget pages, std::int64_t all) {
  std::int64_t too_little = 0, enough = all;
  while (enough - too_little > std::max<std::int64_t>(all / 64, 1)) {
    pages.host = too_little + (enough - too_little) / 2;
    try {
      planner.plan(pages);
      enough = pages.host;
    } catch (const Error&) {
      too_little = pages.host;
    }
  }
  return enough;
}

// Where pages go is told, and there is too little room.
[[noreturn]] void refuse_pages(const StepBenchOptions& o, const StepOfEngine& step,
                               const PageBudget& pages) {
  const StepPlanner planner = step.planner();
  const std::string automatic = automatic_plan(step, "--plan auto without these options");
  if (const std::int64_t least = planner.least_page_bytes(); pages.device < least)
    throw Error(
        fmt::format("--page-memory {} is too little: the largest working set of pages is {}",
                    o.page_memory, text(least)),
        fmt::format("give at least --page-memory {}, or least; {}", size_option(least), automatic));
  const std::int64_t host = planner.plan({.device = pages.device}).memory.host_pages;
  const std::int64_t least_host = pages.disk > 0 ? least_host_bytes(planner, pages, host) : host;
  const bool sparse = step.numerics.sparse.any();
  throw Error(
      fmt::format("--host-memory {} is too little with --page-memory {}: pages that leave the "
                  "device take {}, and {} are allowed on disk{}",
                  o.host_memory, o.page_memory, text(host), text(pages.disk),
                  sparse ? ", where sparse layers keep no gradients" : ""),
      fmt::format("give at least --host-memory {}{}; {}", size_option(least_host),
                  sparse           ? ""
                  : pages.disk > 0 ? ", or more --disk-memory"
                                   : ", or --disk-memory with --disk-path",
                  automatic));
}

[[noreturn]] void refuse_limits(const StepBenchOptions& o, const StepOfEngine& step,
                                const StepLimits& limits) {
  const std::int64_t least = least_device_bytes(step, limits),
                     there = step.fixed_bytes() + step.other_bytes() +
                             limits_of_machine(step.engine.device()).device;
  const std::string more_host =
      o.host_memory.empty() ? "" : fmt::format(", or more than --host-memory {}", o.host_memory);
  if (o.gpu_memory.empty() || least > there)
    throw Error(fmt::format("--context {} needs at least {} on the device, and {} are there",
                            o.context, text(least), text(there)),
                kSmallerStep + more_host);
  throw Error(
      fmt::format("--gpu-memory {} is too little: weights and gradients take {}, and with the step "
                  "it is at least {}",
                  o.gpu_memory, text(step.fixed_bytes()), text(least)),
      fmt::format("give at least --gpu-memory {}{}; {}", size_option(least), more_host,
                  automatic_plan(step, "without limits, --plan auto")));
}

// Of a plan that was made without regard to what the machine has.
void check_fits(const StepOfEngine& step, const StepMemory& m) {
  const Device& device = step.engine.device();
  const bool shared = device.shares_host_memory();
  const std::int64_t needed = m.total() + (shared ? m.host() : 0), free = device.available_bytes(),
                     free_host = device.available_host_bytes();
  if (needed > free)
    throw Error(fmt::format("the step needs {} on the device beside weights and gradients, and {} "
                            "are free",
                            text(needed), text(free)),
                automatic_plan(step, "--plan auto alone"));
  if (!shared && m.host() > free_host)
    throw Error(fmt::format("the step needs {} of host memory, and {} are free", text(m.host()),
                            text(free_host)),
                automatic_plan(step, "--plan auto alone"));
}

StepPlan plan_from_file(const StepBenchOptions& o, const StepOfEngine& step) {
  try {
    return read_plan_file(o.plan, step.engine.config(), step.numerics, step.options.max_tokens);
  } catch (const Error& e) {
    // Not all options of bench step are options of plan.
    const bool whole = o.layers == 0 && o.window.empty();
    throw Error(
        fmt::format("--plan {}", e.what()),
        fmt::format("{}, or give --plan auto",
                    whole ? fmt::format("make a plan of this step: longstride plan "
                                        "--preset {} --context {} --chunk {} --out {}",
                                        o.preset, o.context, step.numerics.chunk_tokens, o.plan)
                          : e.hint()));
  }
}

// With pages as told.
ChosenPlan choose_beside_pages(const StepBenchOptions& o, const StepOfEngine& step,
                               const StepLimits& limits) {
  const PageBudget pages = pages_of(o, step.planner());
  ChosenPlan chosen;
  try {
    chosen = retain_beside(
        pages, [&](const StepOptions& with) { return step.planner(with); }, step.engine.config(),
        step.numerics, step.options, limits.device, rates_of_this_machine(step.engine.device()));
  } catch (const Error&) {
    refuse_pages(o, step, pages);
  }
  if (const std::int64_t needed = step.fixed_bytes() + chosen.plan.memory.total();
      !o.gpu_memory.empty() && chosen.plan.memory.total() > limits.device)
    throw Error(
        fmt::format("--gpu-memory {} is too little with --page-memory {}: the step, weights "
                    "and gradients take {}",
                    o.gpu_memory, o.page_memory, text(needed)),
        fmt::format("give at least --gpu-memory {}; {}", size_option(needed),
                    automatic_plan(step, "--plan auto alone")));
  check_fits(step, chosen.plan.memory);
  return chosen;
}

ChosenPlan choose(const StepBenchOptions& o, const StepOfEngine& step) {
  const StepLimits limits = limits_of(o, step);
  if (!o.page_memory.empty()) return choose_beside_pages(o, step, limits);
  try {
    if (limits.device >= 0) return step.choose(limits);
  } catch (const Error&) {
    // Said below, with what would do.
  }
  refuse_limits(o, step, limits);
}

StepPlan plan_recomputing(const StepBenchOptions& o, const StepOfEngine& step) {
  const StepPlanner planner = step.planner();
  const PageBudget pages = pages_of(o, planner);
  try {
    return planner.plan(pages);
  } catch (const Error&) {
    refuse_pages(o, step, pages);
  }
}

}  // namespace

void check_context(const StepBenchOptions& o, const Engine& engine, const NumericsRecord& numerics,
                   const StepOptions& options) {
  const Device& device = engine.device();
  const bool may_leave = !o.page_memory.empty() || o.plan != "recompute";
  const std::int64_t kv = kv_bytes_needed(engine.config(), numerics, options.max_tokens),
                     free = device.available_bytes(),
                     elsewhere = (device.shares_host_memory() ? 0 : device.available_host_bytes()) +
                                 disk_memory(o).value_or(0);
  if (kv <= free || (may_leave && kv - free <= elsewhere)) return;
  throw Error(
      fmt::format("--context {}: the KV pages alone need {} and the device has {} free{}",
                  o.context, text(kv), text(free),
                  may_leave ? fmt::format(", host memory and disk {}", text(elsewhere)) : ""),
      kv - free > elsewhere ? kSmallerStep
                            : automatic_plan({engine, numerics, options}, "--plan auto"));
}

PlannedStep plan_of(const StepBenchOptions& o, const Engine& engine, const NumericsRecord& numerics,
                    const StepOptions& options) {
  const StepOfEngine step{engine, numerics, options};
  if (o.plan != "auto") {
    PlannedStep planned{o.plan == "recompute" ? plan_recomputing(o, step)
                                              : plan_from_file(o, step)};
    check_fits(step, planned.plan.memory);
    return planned;
  }
  const ChosenPlan chosen = choose(o, step);
  log_info(
      "plan: {} of activations stay and {} go to host memory, which saves {:.1f} TFLOP of "
      "recomputation",
      text(chosen.retention.bytes), text(chosen.retention.host_bytes),
      chosen.retention.saved_flops * 1e-12);
  return {chosen.plan, chosen.retention.saved_flops};
}

}  // namespace longstride::cli
