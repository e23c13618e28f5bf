#include "train/run_plan.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "base/sizes.h"
#include "model/presets.h"
#include "train/optimizer.h"
#include "train/step.h"

namespace longstride {
namespace {

DType dtype_named(const std::string& name) {
  return name == "bf16" ? DType::kBF16 : name == "f16" ? DType::kF16 : DType::kF32;
}

std::string text(std::int64_t bytes) { return format_bytes(static_cast<double>(bytes)); }

// Host memory that is left beside what the run takes of a device that shares it.
std::int64_t host_left(const Device& device, const RunNeeds& needs) {
  return std::max<std::int64_t>(
      0, device.available_host_bytes() - (device.shares_host_memory() ? needs.total() : 0));
}

void place_optimizer(RunPlan& plan, StatePlace place) {
  plan.state.place = place;
  const StateBytes bytes =
      Optimizer::bytes_needed(plan.model.config, plan.model.dtypes, plan.state);
  plan.needs.optimizer = bytes.device;
  plan.needs.optimizer_host = bytes.host;
}

// Where the choice is left to us, moves the optimizer's state to the host if the run does not fit
// and the host has room.
void relieve_device(RunPlan& plan, const Device& device) {
  if (plan.config.memory.optimizer != "auto" || plan.state.place == StatePlace::kHost ||
      plan.needs.total() <= plan.needs.available)
    return;
  place_optimizer(plan, StatePlace::kHost);
  if (plan.needs.optimizer_host > host_left(device, plan.needs))
    place_optimizer(plan, StatePlace::kDevice);
}

// What is left to others where we take what is free.
std::int64_t but_a_reserve(std::int64_t free) {
  constexpr std::int64_t kReserve = std::int64_t{4} << 30;
  return std::max<std::int64_t>(0, free - std::max(kReserve, free / 20));
}

std::int64_t host_for_pages(const RunPlan& plan, const Device& device) {
  if (plan.config.memory.host) return *plan.config.memory.host;
  if (device.shares_host_memory()) return 0;
  return but_a_reserve(
      std::max<std::int64_t>(0, device.available_host_bytes() - plan.needs.optimizer_host));
}

std::int64_t disk_for_pages(const MemoryConfig& memory) {
  if (memory.disk || memory.disk_path.empty()) return memory.disk.value_or(0);
  std::error_code error;
  const std::filesystem::space_info space = std::filesystem::space(memory.disk_path, error);
  if (error)
    throw Error(fmt::format("memory.disk_path {}: {}", memory.disk_path.string(), error.message()),
                "name a directory on a local disk as memory.disk_path");
  return but_a_reserve(static_cast<std::int64_t>(space.available));
}

}  // namespace

ModelSource open_model_source(const ModelSourceConfig& source) {
  ModelSource model;
  if (!source.preset.empty()) {
    model.config = find_preset(source.preset, source.window);
    model.dtypes.assign(parameter_specs(model.config).size(), dtype_named(source.dtype));
    return model;
  }
  model.directory.emplace(ModelDirectory::open(source.path));
  model.config = model.directory->config();
  model.dtypes = model.directory->dtypes();
  return model;
}

RunPlan plan_run(const TrainConfig& config, Device& device) {
  RunPlan plan;
  plan.config = config;
  plan.model = open_model_source(config.model);
  const ModelConfig& model = plan.model.config;
  const DataConfig& data = config.data;
  plan.corpus = open_corpus(
      {data.path, data.format, data.document_token, data.document_index, data.loss_mask});
  plan.samples = std::make_unique<SampleStream>(
      *plan.corpus,
      SampleOptions{config.training.context, data.pack, data.shuffle,
                    static_cast<std::uint64_t>(config.training.seed), model.vocabulary});
  plan.packed =
      data.pack && plan.corpus->document_end(0, plan.corpus->tokens()) < plan.corpus->tokens();
  plan.numerics = choose_numerics(
      device, model, config.training.chunk, config.training.page,
      {config.numerics.compute, config.numerics.determinism, config.numerics.kv_gradient_dtype});
  plan.needs.weights = ParameterSet::bytes_needed(model, plan.model.dtypes);
  plan.needs.gradients = ParameterSet::bytes_needed(model, DType::kF32);
  place_optimizer(plan,
                  config.memory.optimizer == "host" ? StatePlace::kHost : StatePlace::kDevice);
  reserve_libraries(device, model, plan.numerics, config.training.context);
  const MemoryConfig& memory = config.memory;
  plan.needs.available = memory.gpu.value_or(device.available_bytes());
  if (memory.disk.value_or(0) > 0 && memory.disk_path.empty())
    throw Error("memory.disk is set and memory.disk_path is not",
                "name a directory on a local disk as memory.disk_path");
  // The schedule of a hopeless context would itself fill the memory.
  plan.needs.step.kv_pages = kv_bytes_needed(model, plan.numerics, config.training.context);
  relieve_device(plan, device);
  PageBudget budget{.host = host_for_pages(plan, device), .disk = disk_for_pages(memory)};
  budget.disk_directory = memory.disk_path;
  const std::int64_t away = budget.host + budget.disk;
  plan.needs.step_planned = plan.needs.total() <= plan.needs.available + away;
  const auto planned = [&] {
    return plan_step(device, model, plan.model.dtypes, plan.numerics, plan.step_options()).memory;
  };
  if (plan.needs.step_planned) plan.needs.step = planned();
  relieve_device(plan, device);
  if (plan.needs.step_planned && plan.needs.total() > plan.needs.available && away > 0) {
    budget.device = plan.needs.available - plan.needs.weights - plan.needs.gradients -
                    plan.needs.optimizer - plan.needs.step.workspace;
    budget.host = host_for_pages(plan, device);  // less the optimizer's state, if that moved
    plan.pages = budget;
    plan.needs.step = planned();
  }
  plan.needs.host_available = host_left(device, plan.needs);
  if (config.training.context > model.max_positions && model.max_positions > 0)
    log_warning(
        "context {} is longer than the {} positions the model was made for "
        "(max_position_embeddings)",
        config.training.context, model.max_positions);
  return plan;
}

void check_fits(const RunPlan& plan) {
  const RunNeeds& n = plan.needs;
  const TrainingConfig& training = plan.config.training;
  if (n.total() > n.available) {
    const std::string rest =
        n.step_planned ? fmt::format(", KV gradient pages {}, workspace {}",
                                     text(n.step.kv_gradient_pages), text(n.step.workspace))
                       : "";
    // Where auto left the state on the device, the host had no room for it; nothing to say where
    // both are the same memory, and that is full.
    const bool moved = plan.state.place == StatePlace::kHost;
    const std::string optimizer =
        moved ? " (the rest is on the host)"
        : plan.config.memory.optimizer == "auto" && n.host_available > 0
            ? fmt::format(" (too much for the host, which has {} free)", text(n.host_available))
            : "";
    throw Error(
        fmt::format("this run needs {}{} and the device has {} free: weights {}, gradients {}, "
                    "optimizer {}{}, KV pages {}{}",
                    n.step_planned ? "" : "at least ", text(n.total()), text(n.available),
                    text(n.weights), text(n.gradients), text(n.optimizer), optimizer,
                    text(n.step.kv_pages), rest),
        fmt::format(
            "shorten training.context (now {}), make training.chunk smaller (now {}), set "
            "training.keep_chunks to 1 and training.rebuild_feed_forward to true, allow "
            "pages beyond the device by memory.host, {}or choose a smaller model",
            training.context, training.chunk,
            plan.config.memory.optimizer == "device" ? "set memory.optimizer to \"host\", " : ""));
  }
  if (n.host_total() > n.host_available)
    throw Error(
        fmt::format("this run needs {} of host memory and {} are free: optimizer {}, pages {}",
                    text(n.host_total()), text(n.host_available), text(n.optimizer_host),
                    text(n.step.host_pages)),
        "set memory.optimizer to \"device\" if the device has room for it, set memory.host lower "
        "with memory.disk in its place, free memory on this machine, or choose a smaller model");
}

std::string describe(const RunPlan& plan) {
  const ModelConfig& m = plan.model.config;
  const TrainingConfig& t = plan.config.training;
  std::string s;
  const auto row = [&](const char* name, const std::string& value) {
    s += fmt::format("  {:<20} {}\n", name, value);
  };
  row("model",
      fmt::format("{} from {}: {} parameters, {} layers, hidden {}", name_of(m.architecture),
                  plan.model.directory ? plan.model.directory->path().string()
                                       : plan.config.model.preset + " (random)",
                  parameter_count(m), m.layers, m.hidden_size));
  row("data", fmt::format("{} tokens, {} samples an epoch", plan.corpus->tokens(),
                          plan.samples->samples_per_epoch()));
  row("step", fmt::format("{} x {} tokens in chunks of {}, pages of {}", t.batch, t.context,
                          std::min(t.chunk, t.context), t.page));
  row("steps", fmt::format("{}", t.steps));
  row("kernels", fmt::format("{}, {}", plan.numerics.device, plan.numerics.kernels));
  row("weights", text(plan.needs.weights));
  row("gradients", text(plan.needs.gradients));
  row("optimizer", plan.state.place == StatePlace::kDevice
                       ? text(plan.needs.optimizer)
                       : fmt::format("{}: {} on the host pass through it",
                                     text(plan.needs.optimizer), text(plan.needs.optimizer_host)));
  row("KV pages", text(plan.needs.step.kv_pages));
  if (plan.needs.step_planned) {
    row("KV gradient pages", text(plan.needs.step.kv_gradient_pages));
    row("workspace",
        fmt::format("{} (at least {} are alive at once)", text(plan.needs.step.workspace),
                    text(plan.needs.step.workspace_bound)));
  }
  if (plan.needs.step.host_pages > 0) row("pages on the host", text(plan.needs.step.host_pages));
  if (plan.needs.step.disk_pages > 0) row("pages on disk", text(plan.needs.step.disk_pages));
  row("together", fmt::format("{}{} of {} available", plan.needs.step_planned ? "" : "at least ",
                              text(plan.needs.total()), text(plan.needs.available)));
  if (plan.needs.host_total() > 0)
    row("on the host", fmt::format("{} of {} available", text(plan.needs.host_total()),
                                   text(plan.needs.host_available)));
  return s;
}

}  // namespace longstride
