#include "train/run_plan.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "base/sizes.h"
#include "model/fold_adapters.h"
#include "model/presets.h"
#include "model/quantize_specs.h"
#include "model/tied_head.h"
#include "plan/this_machine.h"
#include "tensor/dtype_words.h"
#include "train/auto_chunk.h"
#include "train/chosen_parameters.h"
#include "train/data_check.h"
#include "train/lora_choice.h"
#include "train/run_data.h"
#include "train/run_memory.h"
#include "train/same_run.h"
#include "train/save_room.h"
#include "train/step.h"

namespace longstride {
namespace {

std::string text(std::int64_t bytes) { return format_bytes(static_cast<double>(bytes)); }

}  // namespace

std::int64_t ModelSource::trainable_parameters() const {
  std::int64_t count = 0;
  for (const ParameterSpec& spec : specs)
    if (spec.trainable) count += spec.shape.elements();
  return count;
}

std::int64_t RunPlan::eval_count() const {
  if (!eval_samples) return 0;
  const std::int64_t all = eval_samples->samples_per_epoch();
  return config.eval.samples > 0 ? std::min(config.eval.samples, all) : all;
}

ModelSource open_model_source(const ModelSourceConfig& source, std::int64_t context) {
  ModelSource model;
  if (source.preset.empty()) {
    model = open_model_source(source.path);
  } else {
    model.config = find_preset(source.preset, source.window);
    model.specs = parameter_specs(model.config, dtype_of_word(source.dtype).value());
  }
  if (!source.quantize.empty())
    quantize_projections(model.specs, format_of_word(source.quantize).value(), "model.quantize");
  const std::string where = source.preset.empty() ? (source.path / "config.json").string()
                                                  : fmt::format("preset {}", source.preset);
  model.positions_made_for = apply_rope(source.rope, rope_keys(), context, where, model.config);
  return model;
}

ModelSource open_model_source(const std::filesystem::path& directory) {
  ModelSource model;
  model.directory.emplace(ModelDirectory::open(directory));
  model.config = model.directory->config();
  model.positions_made_for = model.config.max_positions;
  model.specs = model.directory->specs();
  model.side_files = read_side_files(directory);
  return model;
}

namespace {

// Needs the model; settles attention and the record.
void plan_numerics(RunPlan& plan, Device& device) {
  const TrainConfig& config = plan.config;
  SparseLayers sparse = apply_attention(config.attention, attention_keys(), config.training.page,
                                        config.training.context, plan.model.config);
  if (!sparse.any() && chooses_selection(config.attention))
    log_warning(
        "[attention] has settings of sparse layers, and no layer is sparse: they have no "
        "effect without attention.kind = \"sparse\" or attention.layers");
  const NumericsChoice choice{config.numerics.compute,
                              config.numerics.determinism,
                              config.numerics.kv_gradient_dtype,
                              std::move(sparse),
                              quantization_of(plan.model.specs),
                              sums_head_apart(plan.model.specs),
                              config.parallel.data,
                              config.numerics.kv_dtype,
                              config.attention.kv_dtype,
                              config.attention.kv_gradient_dtype,
                              config.numerics.hot_pages};
  std::optional<std::int64_t>& chunk = plan.config.training.chunk;
  if (!chunk && plan.resume) chunk = plan.resume->state.numerics.chunk_tokens;
  if (!chunk)
    chunk = auto_chunk({plan.model.config, plan.model.specs, choice, config.training.context,
                        config.training.page},
                       device);
  plan.numerics = choose_numerics(device, plan.model.config, *chunk, config.training.page, choice);
}

}  // namespace

namespace {

// Opens the model and chooses what of it is trained. A checkpoint is the model itself, with the
// rope settings in its config.json, or an adapter of the model that the configuration names.
void open_model(RunPlan& plan, const Device& device) {
  const TrainConfig& config = plan.config;
  const bool adapters = config.lora.any();
  ModelSource& model = plan.model;
  model = plan.resume && !adapters ? open_model_source(plan.resume->directory)
                                   : open_model_source(config.model, config.training.context);
  if (adapters) {
    const std::filesystem::path& from = plan.resume ? plan.resume->directory : config.lora.path;
    if (!from.empty()) model.adapter_source.emplace(AdapterDirectory::open(from, model.config));
    model.adapter = choose_adapter(
        config.lora, model.config, model.adapter_source ? &*model.adapter_source : nullptr,
        config.model.preset.empty() ? config.model.path.string() : config.model.preset);
    add_adapters(model.specs, *model.adapter, model.config,
                 compute_type(device, config.numerics.compute));
  }
  choose_parameters(config, model.specs);
  // A run goes on as it began.
  if (!plan.resume || plan.resume->state.numerics.tied_apart) sum_head_apart(model.specs);
}

}  // namespace

RunPlan plan_shapes(const TrainConfig& config, Device& device) {
  RunPlan plan;
  plan.config = config;
  open_model(plan, device);
  plan_numerics(plan, device);
  return plan;
}

RunPlan plan_run(const TrainConfig& config, Device& device, std::optional<ResumePoint> resume,
                 const RankPlace& place) {
  RunPlan plan;
  plan.config = config;
  plan.place = place;
  plan.resume = std::move(resume);
  open_model(plan, device);
  plan_numerics(plan, device);
  open_run_data(plan);
  // A resumed run keeps the choices that another machine might make differently.
  if (plan.resume) plan.numerics.head_block_rows = plan.resume->state.numerics.head_block_rows;
  plan_memory(plan, device, rates_of_this_machine(device));
  plan_saves(plan);
  if (config.training.context > plan.model.positions_made_for)
    log_warning(
        "context {} is longer than the {} positions the model is made for; model.rope_type, "
        "model.rope_factor and model.rope_theta extend them",
        config.training.context, plan.model.positions_made_for);
  if (plan.resume) check_same_run(plan);
  warn_about_sizes(plan);
  return plan;
}

void check_fits(const RunPlan& plan) {
  const RunNeeds& n = plan.needs;
  const TrainingConfig& training = plan.config.training;
  if (n.total() > n.available) {
    std::string rest = n.step_planned
                           ? fmt::format(", KV gradient pages {}, workspace {}",
                                         text(n.step.kv_gradient_pages), text(n.step.workspace))
                           : "";
    if (n.step.wide_pages > 0)
      rest += fmt::format(", wide copies of pages in 8 bits {}", text(n.step.wide_pages));
    if (n.step.retained > 0) rest += fmt::format(", activations {}", text(n.step.retained));
    if (n.step.summaries > 0) rest += fmt::format(", page summaries {}", text(n.step.summaries));
    if (n.messages_device > 0) rest += fmt::format(", messages {}", text(n.messages_device));
    // If auto left the state on the device, it did not fit in host memory; no hint if device and
    // host are the same memory.
    const std::string optimizer =
        n.optimizer_disk > 0   ? " (the rest is on the host and on disk)"
        : n.optimizer_host > 0 ? " (the rest is on the host)"
        : plan.config.memory.optimizer == "auto" && n.host_available > 0
            ? fmt::format(" (too much for the host, which has {} free)", text(n.host_available))
            : "";
    throw Error(
        fmt::format("this run needs {}{} and the device has {} free: weights {}, gradients {}, "
                    "optimizer {}{}, KV pages {}{}",
                    n.step_planned ? "" : "at least ", text(n.total()), text(n.available),
                    text(n.weights), text(n.gradients), text(n.optimizer), optimizer,
                    text(n.step.kv_pages), rest),
        fmt::format("shorten training.context (now {}), make training.chunk smaller (now {}), set "
                    "training.keep_chunks to 1 and training.rebuild_feed_forward to true, allow "
                    "pages beyond the device by memory.host, {}or choose a smaller model",
                    training.context, training.chunk.value_or(0),
                    plan.config.memory.optimizer == "device"
                        ? "set memory.optimizer to \"host\" or \"disk\", "
                        : ""));
  }
  if (n.host_total() > n.host_available)
    throw Error(
        fmt::format("this run needs {} of host memory and {} are free: optimizer {}, pages {}, "
                    "activations {}",
                    text(n.host_total()), text(n.host_available), text(n.optimizer_host),
                    text(n.step.host_pages), text(n.step.host_activations)),
        "set memory.optimizer to \"device\" if the device has room for it, or to \"disk\" with "
        "memory.disk_path; set memory.host lower with memory.disk in its place, free memory on "
        "this machine, or choose a smaller model");
  if (n.disk_total() > n.disk_available)
    throw Error(
        fmt::format("this run needs {} on disk at memory.disk_path {} and {} there: "
                    "optimizer {}, pages {}, activations {}",
                    text(n.disk_total()), plan.config.memory.disk_path.string(),
                    plan.config.memory.disk
                        ? fmt::format("memory.disk allows {}", text(n.disk_available))
                        : fmt::format("{} are free but a reserve", text(n.disk_available)),
                    text(n.optimizer_disk), text(n.step.disk_pages), text(n.step.disk_activations)),
        "raise memory.disk, name a disk with more room as memory.disk_path, raise "
        "memory.host, shorten training.context, or choose a smaller model");
  if (n.saves.more > 0 && n.saves.available && n.saves.bytes > *n.saves.available)
    throw Error(
        fmt::format("a save takes {} and checkpoint.directory {} has {} free", text(n.saves.bytes),
                    plan.config.checkpoint.directory.string(), text(*n.saves.available)),
        "name a disk with more room as checkpoint.directory, or free some there");
}

}  // namespace longstride
