#include "train/chosen_parameters.h"

#include <charconv>
#include <cmath>
#include <functional>
#include <string>

#include "base/error.h"
#include "model/quantize_specs.h"
#include "model/trainable.h"

namespace longstride {
namespace {

struct GlobValue {
  std::string glob;
  double value = 0;
};

GlobValue parse(const std::string& entry, const char* key) {
  const std::size_t at = entry.rfind('=');
  GlobValue parsed;
  if (at != std::string::npos) {
    parsed.glob = entry.substr(0, at);
    const char* const end = entry.data() + entry.size();
    const auto [rest, error] = std::from_chars(entry.data() + at + 1, end, parsed.value);
    if (error == std::errc() && rest == end && std::isfinite(parsed.value) && parsed.value >= 0 &&
        !parsed.glob.empty())
      return parsed;
  }
  throw Error(fmt::format("{}: \"{}\" is not a glob and a number of at least 0", key, entry),
              "write it as lm_head.weight=1e-5, for instance");
}

void for_matches(const std::vector<std::string>& entries, const char* key,
                 std::vector<ParameterSpec>& specs,
                 const std::function<void(ParameterSpec&, double)>& set) {
  for (const std::string& entry : entries) {
    const GlobValue parsed = parse(entry, key);
    check_glob(parsed.glob, specs, key);
    bool trained = false;
    for (ParameterSpec& spec : specs)
      if (matches(parsed.glob, spec.file_name())) {
        set(spec, parsed.value);
        trained = trained || spec.trainable;
      }
    if (!trained)
      throw Error(
          fmt::format("{}: \"{}\" has no effect, since all that it matches is frozen", key, entry),
          "leave it out, or change model.train or model.freeze");
  }
}

}  // namespace

void choose_parameters(const TrainConfig& config, std::vector<ParameterSpec>& specs) {
  if (!config.lora.any())
    choose_trainable(specs, config.model.train, config.model.freeze, "model.train", "model.freeze");
  refuse_trained_codes(specs);
  const OptimizerConfig& optimizer = config.optimizer;
  for_matches(
      optimizer.learning_rates, "optimizer.learning_rates", specs,
      [&](ParameterSpec& spec, double rate) { spec.rate = rate / optimizer.learning_rate; });
  for_matches(optimizer.weight_decays, "optimizer.weight_decays", specs,
              [](ParameterSpec& spec, double decay) { spec.weight_decay = decay; });
}

}  // namespace longstride
