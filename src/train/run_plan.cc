#include "train/run_plan.h"

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

}  // namespace

ModelSource open_model_source(const ModelSourceConfig& source) {
  ModelSource model;
  if (!source.preset.empty()) {
    model.config = find_preset(source.preset);
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
  plan.numerics = choose_numerics(device, model, config.training.chunk, config.training.page,
                                  {config.numerics.compute, config.numerics.determinism});
  plan.needs.weights = ParameterSet::bytes_needed(model, plan.model.dtypes);
  plan.needs.gradients = ParameterSet::bytes_needed(model, DType::kF32);
  plan.needs.optimizer = Optimizer::bytes_needed(model, plan.model.dtypes);
  reserve_libraries(device, model, plan.numerics, config.training.context);
  const MemoryConfig& memory = config.memory;
  plan.needs.available = memory.gpu > 0 ? memory.gpu : device.available_bytes();
  if (memory.disk > 0 && memory.disk_path.empty())
    throw Error("memory.disk is set and memory.disk_path is not",
                "name a directory on a local disk as memory.disk_path");
  // The schedule of a hopeless context would itself fill the memory.
  plan.needs.step.kv_pages = kv_bytes_needed(model, plan.numerics, config.training.context);
  const std::int64_t away = memory.host + memory.disk;
  plan.needs.step_planned = plan.needs.total() <= plan.needs.available + away;
  const auto planned = [&] {
    return plan_step(device, model, plan.model.dtypes, plan.numerics, plan.step_options()).memory;
  };
  if (plan.needs.step_planned) plan.needs.step = planned();
  if (plan.needs.step_planned && plan.needs.total() > plan.needs.available && away > 0) {
    plan.pages = {plan.needs.available - plan.needs.weights - plan.needs.gradients -
                      plan.needs.optimizer - plan.needs.step.workspace,
                  memory.host, memory.disk, memory.disk_path};
    plan.needs.step = planned();
  }
  if (config.training.context > model.max_positions && model.max_positions > 0)
    log_warning(
        "context {} is longer than the {} positions the model was made for "
        "(max_position_embeddings)",
        config.training.context, model.max_positions);
  return plan;
}

void check_fits(const RunPlan& plan) {
  const RunNeeds& n = plan.needs;
  if (n.total() <= n.available) return;
  const auto bytes = [](std::int64_t b) { return format_bytes(static_cast<double>(b)); };
  const std::string rest =
      n.step_planned ? fmt::format(", KV gradient pages {}, workspace {}",
                                   bytes(n.step.kv_gradient_pages), bytes(n.step.workspace))
                     : "";
  throw Error(fmt::format("this run needs {}{} and the device has {} free: weights {}, gradients "
                          "{}, optimizer {}, KV pages {}{}",
                          n.step_planned ? "" : "at least ", bytes(n.total()), bytes(n.available),
                          bytes(n.weights), bytes(n.gradients), bytes(n.optimizer),
                          bytes(n.step.kv_pages), rest),
              fmt::format("shorten training.context (now {}), make training.chunk smaller (now "
                          "{}), set training.keep_chunks to 1 and training.rebuild_feed_forward to "
                          "true, allow pages beyond the device by memory.host, or choose a smaller "
                          "model",
                          plan.config.training.context, plan.config.training.chunk));
}

std::string describe(const RunPlan& plan) {
  const ModelConfig& m = plan.model.config;
  const TrainingConfig& t = plan.config.training;
  const auto bytes = [](std::int64_t b) { return format_bytes(static_cast<double>(b)); };
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
  row("weights", bytes(plan.needs.weights));
  row("gradients", bytes(plan.needs.gradients));
  row("optimizer", bytes(plan.needs.optimizer));
  row("KV pages", bytes(plan.needs.step.kv_pages));
  if (plan.needs.step_planned) {
    row("KV gradient pages", bytes(plan.needs.step.kv_gradient_pages));
    row("workspace",
        fmt::format("{} (at least {} are alive at once)", bytes(plan.needs.step.workspace),
                    bytes(plan.needs.step.workspace_bound)));
  }
  if (plan.needs.step.host_pages > 0) row("pages on the host", bytes(plan.needs.step.host_pages));
  if (plan.needs.step.disk_pages > 0) row("pages on disk", bytes(plan.needs.step.disk_pages));
  row("together", fmt::format("{}{} of {} available", plan.needs.step_planned ? "" : "at least ",
                              bytes(plan.needs.total()), bytes(plan.needs.available)));
  return s;
}

}  // namespace longstride
