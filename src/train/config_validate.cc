// Checks that involve several keys of a configuration.
#include "base/cores.h"
#include "base/error.h"
#include "base/log.h"
#include "train/config.h"
#include "train/config_table.h"
#include "train/config_value.h"

namespace longstride {
namespace {

void validate_model(const ModelSourceConfig& model) {
  if (model.path.empty() && model.preset.empty())
    throw Error("no model is given: both model.path and model.preset are missing",
                "set model.path to a Hugging Face directory, or model.preset to the name of a "
                "built-in shape");
  if (!model.path.empty() && !model.preset.empty())
    throw Error(fmt::format("both model.path ({}) and model.preset ({}) are given",
                            model.path.string(), model.preset),
                "leave one of them out");
  if (!model.path.empty() && model.window != 0)
    throw Error(
        fmt::format("model.window is {}, but a directory sets its own windows", model.window),
        "leave model.window out, or change sliding_window in the directory's config.json");
  if (!model.path.empty() && model.dtype != ModelSourceConfig{}.dtype)
    throw Error(fmt::format("model.dtype is \"{}\", but the weights of a directory keep the type "
                            "they are stored in",
                            model.dtype),
                "leave model.dtype out, or train a preset");
}

void validate_lora(const LoraConfig& lora, const ModelSourceConfig& model) {
  if (!lora.any()) {
    const char* given = lora.alpha                 ? "alpha"
                        : lora.rslora              ? "rslora"
                        : lora.dropout > 0         ? "dropout"
                        : !lora.targets.empty()    ? "targets"
                        : !lora.layers.empty()     ? "layers"
                        : !lora.also_train.empty() ? "also_train"
                                                   : nullptr;
    if (given != nullptr)
      throw Error(fmt::format("lora.{} is set and lora.rank is not", given),
                  "set lora.rank to train adapters (16, for instance), or leave [lora] out");
    return;
  }
  const char* chosen = !model.train.empty() ? "train" : !model.freeze.empty() ? "freeze" : nullptr;
  if (chosen != nullptr)
    throw Error(
        fmt::format("model.{} and [lora] are both given, and adapters freeze the model", chosen),
        "name what is trained beside the adapters in lora.also_train, and the layers with "
        "adapters in lora.layers");
}

void validate_data(const DataConfig& data) {
  if (data.document_token && !data.document_index.empty())
    throw Error("both data.document_token and data.document_index are given",
                "leave one of them out");
  const char* for_tokens = data.document_token            ? "document_token"
                           : !data.document_index.empty() ? "document_index"
                           : !data.loss_mask.empty()      ? "loss_mask"
                                                          : nullptr;
  if (data.format == "text" && for_tokens != nullptr)
    throw Error(
        fmt::format("data.{} does not go with data.format = \"text\"", for_tokens),
        "each text file is one document and all of it counts; for more, give tokens as u32 or u16");
  const char* for_one = !data.document_index.empty() ? "document_index"
                        : !data.loss_mask.empty()    ? "loss_mask"
                                                     : nullptr;
  if (data.path.size() > 1 && for_one != nullptr)
    throw Error(fmt::format("data.{} belongs to one token file, but data.path names {}", for_one,
                            data.path.size()),
                "join the token files into one");
}

// The shares belong to the paths.
void validate_mix(const DataConfig& data) {
  if (data.mix.empty()) return;
  if (data.mix.size() != data.path.size())
    throw Error(fmt::format("data.mix has {} shares, and data.path {} entries", data.mix.size(),
                            data.path.size()),
                "give one share for each path, or leave data.mix out");
  constexpr std::size_t kMost = 1000;
  if (data.mix.size() > kMost)
    throw Error(fmt::format("data.mix has {} shares", data.mix.size()),
                fmt::format("{} is the most: join some of the data", kMost));
}

void validate_packing(const DataConfig& data) {
  if (data.pack == Packing::kStretches && data.long_documents != DataConfig{}.long_documents)
    throw Error(fmt::format("data.long = \"{}\" has no effect with data.pack = true, which cuts "
                            "documents of any length",
                            data.long_documents),
                "set data.pack to \"whole\" or to false, or leave data.long out");
}

void validate_eval(const EvalConfig& eval, const DataConfig& data) {
  const char* given = !eval.document_index.empty() ? "document_index"
                      : !eval.loss_mask.empty()    ? "loss_mask"
                      : eval.every > 0             ? "every"
                      : eval.samples > 0           ? "samples"
                                                   : nullptr;
  if (eval.path.empty()) {
    if (given == nullptr) return;
    throw Error(fmt::format("eval.{} is set and eval.path is not", given),
                "name data to evaluate on as eval.path");
  }
  const bool for_tokens = !eval.document_index.empty() || !eval.loss_mask.empty();
  if (for_tokens && (data.format == "text" || eval.path.size() > 1))
    throw Error(fmt::format("eval.{} belongs to one token file", given),
                "name one file of tokens as eval.path, or leave it out");
  if (!eval.document_index.empty() && data.document_token)
    throw Error("both data.document_token and eval.document_index are given",
                "leave one of them out");
}

void validate_training(const TrainingConfig& training) {
  if (!training.chunk || *training.chunk % training.page == 0) return;
  const std::int64_t fitting = (*training.chunk / training.page + 1) * training.page;
  throw Error(fmt::format("training.chunk ({}) is not a multiple of training.page ({})",
                          *training.chunk, training.page),
              fmt::format("set training.chunk to {}, for example", fitting));
}

// Groups are of equally many sequences.
void validate_groups(const ParallelConfig& parallel, const TrainingConfig& training) {
  const std::int64_t rest = training.batch % parallel.data;
  if (rest == 0) return;
  throw Error(
      fmt::format("training.batch ({}) is not a multiple of parallel.data ({})", training.batch,
                  parallel.data),
      fmt::format("set training.batch to {}, for example", training.batch + parallel.data - rest));
}

// A warm-up longer than the run is allowed: a short trial of a long run has its first rates.
void warn_of_warm_up(const ScheduleConfig& schedule, std::int64_t steps) {
  if (schedule.warmup_steps > steps)
    log_warning(
        "training.steps ({}) ends before schedule.warmup_steps ({}): the learning rate goes up to "
        "{:.3g} of its peak",
        steps, schedule.warmup_steps,
        static_cast<double>(steps) / static_cast<double>(schedule.warmup_steps));
}

}  // namespace

void validate(const TrainConfig& config) {
  validate_model(config.model);
  validate_lora(config.lora, config.model);
  for (const ConfigKey& key : config_keys()) check_config_value(key, config);
  validate_data(config.data);
  validate_mix(config.data);
  validate_packing(config.data);
  validate_eval(config.eval, config.data);
  validate_training(config.training);
  validate_groups(config.parallel, config.training);
  warn_of_warm_up(config.schedule, config.training.steps);
  if (config.device.threads > 0) warn_of_many_threads("device.threads", config.device.threads);
}

}  // namespace longstride
