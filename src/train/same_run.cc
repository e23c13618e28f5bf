#include "train/same_run.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "model/model_digest.h"
#include "model/quantize_specs.h"
#include "train/config_table.h"
#include "train/run_data.h"

namespace longstride {
namespace {

// Settings that decide what the run computes.
constexpr std::pair<const char*, const char*> kFixedKeys[] = {{"model", "preset"},
                                                              {"model", "dtype"},
                                                              {"model", "window"},
                                                              {"model", "train"},
                                                              {"model", "freeze"},
                                                              {"data", "document_token"},
                                                              {"data", "pack"},
                                                              {"data", "shuffle"},
                                                              {"data", "mix"},
                                                              {"data", "long"},
                                                              {"training", "context"},
                                                              {"training", "chunk"},
                                                              {"training", "page"},
                                                              {"training", "seed"},
                                                              {"numerics", "compute"},
                                                              {"numerics", "determinism"},
                                                              {"numerics", "kv_gradient_dtype"},
                                                              {"numerics", "kv_dtype"},
                                                              {"numerics", "hot_pages"},
                                                              {"attention", "kind"},
                                                              {"attention", "layers"},
                                                              {"attention", "budget"},
                                                              {"attention", "sinks"},
                                                              {"attention", "recent"},
                                                              {"attention", "union_pages"},
                                                              {"attention", "summary"},
                                                              {"attention", "summary_tokens"},
                                                              {"attention", "scoring"},
                                                              {"attention", "kv_dtype"},
                                                              {"attention", "kv_gradient_dtype"},
                                                              {"parallel", "data"},
                                                              {"lora", "rank"},
                                                              {"lora", "alpha"},
                                                              {"lora", "rslora"},
                                                              {"lora", "dropout"},
                                                              {"lora", "targets"},
                                                              {"lora", "layers"},
                                                              {"lora", "also_train"},
                                                              {"optimizer", "state"},
                                                              {"optimizer", "masters"}};
constexpr const char* kFixedModelKeys[] = {"quantize", "rope_type", "rope_theta", "rope_factor",
                                           "rope_original_positions"};
// Settings that may change although they affect the result; changes are reported.
constexpr const char* kToldSections[] = {"optimizer", "schedule"};
constexpr std::pair<const char*, const char*> kToldKeys[] = {{"training", "batch"},
                                                             {"training", "steps"}};
// The location of the data does not affect the result, as long as the contents are the same.
constexpr const char* kDataPaths[] = {"path", "document_index", "loss_mask"};

const OrderedJson* value_at(const OrderedJson& config, const char* section, const char* key) {
  if (!config.contains(section) || !config.at(section).contains(key)) return nullptr;
  return &config.at(section).at(key);
}

// A setting in the two configurations.
struct Compared {
  const char *section, *key;
  const OrderedJson *now, *then;

  bool same() const {
    return (now == nullptr) == (then == nullptr) && (now == nullptr || *now == *then);
  }
  [[noreturn]] void refuse(const std::filesystem::path& directory) const {
    throw Error(fmt::format("{}.{} is {} but the checkpoint {} was made with {}", section, key,
                            now ? dump_json(*now) : "not set", directory.string(),
                            then ? dump_json(*then) : "nothing set"),
                "put the old value back to resume, or start a new run in another "
                "checkpoint.directory (with this checkpoint as model.path)");
  }
};

// Tokens are u32 unless the configuration says otherwise; that was written out once.
void check_same_format(const Compared& format, const std::filesystem::path& directory) {
  const auto name = [](const OrderedJson* value) {
    return value == nullptr ? OrderedJson("u32") : *value;
  };
  if (name(format.now) != name(format.then)) format.refuse(directory);
}

// The same data may have moved; changed data in the old place cause a warning only, since they may
// have been fixed on purpose.
template <class ComparedOf>
void check_same_data(const RunPlan& plan, const ComparedOf& compared,
                     const std::filesystem::path& directory) {
  const TrainState& saved = plan.resume->state;
  bool same_paths = true, as_many = true;
  for (const char* key : kDataPaths) {
    const Compared path = compared("data", key);
    same_paths = same_paths && path.same();
    // No document crosses the end of a file, so a different number of files is different data.
    as_many = as_many && (path.now == nullptr) == (path.then == nullptr) &&
              (path.now == nullptr || path.now->size() == path.then->size());
  }
  if (saved.data_digest.empty() ? same_paths : as_many && saved.data_digest == data_digest(plan))
    return;
  for (const char* key : kDataPaths)
    if (const Compared path = compared("data", key); !path.same()) path.refuse(directory);
  log_warning("data.path {} holds other data than when {} was saved: the run goes on with these",
              dump_json(*compared("data", "path").now), directory.string());
}

// Entries of config.json that do not affect the arithmetic. Types are compared tensor by tensor.
constexpr const char* kIdleEntries[] = {
    "dtype",         "torch_dtype",          "quantization_config",
    "_name_or_path", "transformers_version", "architectures"};

void check_same_config(Json now, Json then, const std::filesystem::path& path,
                       const std::filesystem::path& directory) {
  for (const char* key : kIdleEntries) {
    now.erase(key);
    then.erase(key);
  }
  for (const Json* a : {&now, &then})
    for (const auto& [key, value] : a->items()) {
      const auto text = [&, &key = key](const Json& json) {
        return json.contains(key) ? json.at(key).dump() : std::string("not there");
      };
      if (text(now) == text(then)) continue;
      throw Error(
          fmt::format("{} is {} in {}, but the checkpoint {} was made with a model where it is {}",
                      key, text(now), (path / "config.json").string(), directory.string(),
                      text(then)),
          "put the old value back to resume, or start a new run in another checkpoint.directory "
          "(with this checkpoint as model.path, and the new value in its config.json)");
    }
}

void check_same_tensors(const ModelDirectory& now, const ModelDirectory& then,
                        const std::string& quantize) {
  std::vector<ParameterSpec> specs = now.specs();
  if (!quantize.empty())
    quantize_projections(specs, format_of_word(quantize).value(), "model.quantize");
  if (std::ranges::equal(specs, then.specs(), {}, &ParameterSpec::dtype, &ParameterSpec::dtype))
    return;
  throw Error(fmt::format("the weights in {} are not those that {} was made from: their number or "
                          "types differ",
                          now.path().string(), then.path().string()),
              "name the model that the run began with as model.path, or start a new run in another "
              "checkpoint.directory");
}

// An adapter goes with one model only.
void check_same_base(const RunPlan& plan) {
  if (model_digest(*plan.model.directory) == plan.resume->state.model_digest) return;
  throw Error(fmt::format("the model in {} is not the one that the adapter in {} was trained on",
                          plan.model.directory->path().string(), plan.resume->directory.string()),
              "name the model that the run began with as model.path, or start a new run in another "
              "checkpoint.directory");
}

// Compares contents, not paths. If the model is gone, the checkpoint has all that is needed.
void check_same_model(const RunPlan& plan) {
  const std::filesystem::path& path = plan.config.model.path;
  if (path.empty()) return;
  if (plan.model.adapter) return check_same_base(plan);
  std::optional<ModelDirectory> base;
  try {
    base.emplace(ModelDirectory::open(path));
  } catch (const Error& e) {
    log_info("model.path cannot be read ({}); the checkpoint has all that is needed", e.what());
    return;
  }
  ModelConfig config = base->config();
  apply_rope(plan.config.model.rope, rope_keys(), plan.config.training.context,
             (path / "config.json").string(), config);
  check_same_config(config.raw, plan.model.config.raw, path, plan.resume->directory);
  check_same_tensors(*base, *plan.model.directory, plan.config.model.quantize);
}

}  // namespace

void check_same_run(const RunPlan& plan) {
  LS_CHECK(plan.resume.has_value(), "nothing to compare with");
  const TrainState& saved = plan.resume->state;
  const std::filesystem::path& directory = plan.resume->directory;
  const OrderedJson config = config_to_json(plan.config);
  // Checkpoints from before there was a setting have its default.
  const OrderedJson defaults = config_to_json({});
  const auto compared = [&](const char* section, const char* key) {
    const OrderedJson* then = value_at(saved.config, section, key);
    return Compared{section, key, value_at(config, section, key),
                    then != nullptr ? then : value_at(defaults, section, key)};
  };
  const auto refuse_another = [&](const char* section, const char* key) {
    if (const Compared c = compared(section, key); !c.same()) c.refuse(directory);
  };
  for (const auto& [section, key] : kFixedKeys) refuse_another(section, key);
  check_same_format(compared("data", "format"), directory);
  for (const char* key : kFixedModelKeys) refuse_another("model", key);
  check_same_model(plan);

  std::vector<std::string> changes;
  const auto tell = [&](const char* section, const char* key) {
    if (const Compared c = compared(section, key); !c.same())
      changes.push_back(fmt::format("{}.{} from {} to {}", section, key,
                                    c.then ? c.then->dump() : "nothing",
                                    c.now ? c.now->dump() : "nothing"));
  };
  for (const ConfigKey& key : config_keys())
    for (const char* section : kToldSections)
      if (std::string_view(section) == key.section) tell(key.section, key.key);
  for (const auto& [section, key] : kToldKeys) tell(section, key);
  if (!changes.empty())
    log_info("changed since {}: {}", directory.string(), fmt::join(changes, ", "));
  if (saved.next_is_nonfinite)
    log_warning(
        "{} was saved because the step after it was not finite; --resume=DIR goes on from an "
        "earlier one",
        directory.string());

  check_same_data(plan, compared, directory);
}

}  // namespace longstride
