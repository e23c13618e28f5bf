#include "train/remedies.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>

#include "base/error.h"
#include "train/run_memory.h"

namespace longstride {
namespace {

// The plan with these settings, which may not suit the model; nothing if it does not fit.
std::optional<RunPlan> fitting_plan(const TrainConfig& config, Device& device,
                                    const MachineRates& rates) {
  try {
    RunPlan plan = plan_shapes(config, device);
    plan_memory(plan, device, rates, Effort::kQuick);
    check_fits(plan);
    return plan;
  } catch (const Error&) {
    return std::nullopt;
  }
}

// A change that saves memory. `apply` returns false if it changes nothing; `setting` is what a user
// writes for it, given a plan with all changes: nothing if another one took its place.
struct Remedy {
  bool (*apply)(TrainConfig&);
  std::string (*setting)(const RunPlan&);
};
using Settings = std::vector<Remedy>;

bool keep_state_on_host(TrainConfig& c) {
  if (c.memory.optimizer == "host" || c.memory.optimizer == "auto") return false;
  c.memory.optimizer = "host";
  return true;
}

template <std::int64_t tokens>
bool shorten_chunk(TrainConfig& c) {
  const std::int64_t page = c.training.page, chunk = std::max(tokens, page);
  if (c.training.chunk.value_or(chunk) <= chunk || chunk % page != 0) return false;
  c.training.chunk = chunk;
  return true;
}

bool round_gradients(TrainConfig& c) {
  if (c.numerics.kv_gradient_dtype != "f32" || !c.attention.kv_gradient_dtype.empty()) return false;
  c.numerics.kv_gradient_dtype = "bf16";
  return true;
}

bool use_disk_here(TrainConfig& c) {
  if (c.memory.disk || !c.memory.disk_path.empty()) return false;
  c.memory.disk_path = ".";
  return true;
}

bool code_keys(TrainConfig& c) {
  if (c.numerics.kv_dtype != "auto" || !c.attention.kv_dtype.empty()) return false;
  c.numerics.kv_dtype = "int8";
  return true;
}

bool code_moments(TrainConfig& c) {
  if (c.optimizer.state != "fp32") return false;
  c.optimizer.state = "8bit";
  return true;
}

// The chunk of a dense layer is mostly too long for the pages that a sparse one selects.
bool select_pages(TrainConfig& c) {
  if (c.attention.kind == "sparse" || !c.attention.layers.empty()) return false;
  c.attention.kind = "sparse";
  shorten_chunk<4096>(c);
  return true;
}

// Only where no layer is dense: hot pages keep the errors of sparse layers small, and layers with
// windows keep bf16.
bool code_gradients(TrainConfig& c) {
  const bool dense = c.attention.layers.empty()
                         ? c.attention.kind != "sparse"
                         : std::ranges::any_of(c.attention.layers, [](const std::string& layer) {
                             return layer.starts_with("dense");
                           });
  const bool coded =
      c.numerics.kv_gradient_dtype == "int8" || c.numerics.kv_gradient_dtype == "fp8";
  if (dense || coded || !c.attention.kv_gradient_dtype.empty()) return false;
  c.numerics.kv_gradient_dtype = "int8";
  return true;
}

bool add_windows(TrainConfig& c) {
  if (!c.attention.layers.empty()) return false;
  c.attention.kind = AttentionChoice{}.kind;
  c.attention.layers = {"sparse", "window(1024)"};
  shorten_chunk<4096>(c);
  return true;
}

bool use_any_disk(TrainConfig& c) {
  c.memory.disk = std::int64_t{1} << 45;
  if (c.memory.disk_path.empty()) c.memory.disk_path = ".";
  return true;
}

std::string chunk_setting(const RunPlan& plan) {
  return fmt::format("training.chunk = {}", plan.numerics.chunk_tokens);
}

std::string disk_setting(const RunPlan& plan) {
  constexpr std::int64_t kGiB = std::int64_t{1} << 30;
  return fmt::format("memory.disk_path = \"DIRECTORY\", with {} GiB free",
                     (plan.needs.disk_total() + kGiB - 1) / kGiB);
}

std::string sparse_setting(const RunPlan& plan) {
  return plan.config.attention.kind == "sparse" ? "attention.kind = \"sparse\"" : "";
}

// Those that change no result, but for rounding, from the cheapest to the dearest. Of an absent
// machine it is not known what is on its disk.
Settings that_keep_attention(bool absent) {
  Settings list = {{keep_state_on_host,
                    [](const RunPlan&) -> std::string { return "memory.optimizer = \"host\""; }},
                   {shorten_chunk<4096>, chunk_setting},
                   {round_gradients, [](const RunPlan&) -> std::string {
                      return "numerics.kv_gradient_dtype = \"bf16\"";
                    }}};
  if (!absent) list.push_back({use_disk_here, disk_setting});
  list.insert(
      list.end(),
      {{code_keys, [](const RunPlan&) -> std::string { return "numerics.kv_dtype = \"int8\""; }},
       {code_moments, [](const RunPlan&) -> std::string { return "optimizer.state = \"8bit\""; }},
       {shorten_chunk<1024>, chunk_setting}});
  return list;
}

Settings that_attend_to_less() {
  return {{select_pages, sparse_setting},
          {code_gradients,
           [](const RunPlan&) -> std::string { return "numerics.kv_gradient_dtype = \"int8\""; }},
          {add_windows, [](const RunPlan&) -> std::string {
             return "attention.layers = [\"sparse\", \"window(1024)\"]";
           }}};
}

Settings joined(Settings a, const Settings& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// `applied` gets those that change something.
TrainConfig with(TrainConfig config, const Settings& remedies, Settings* applied = nullptr) {
  for (const Remedy& r : remedies)
    if (r.apply(config) && applied != nullptr) applied->push_back(r);
  return config;
}

// Those of `remedies` that make the run fit; empty: all of them do not. `on_any_disk`: none is left
// out without which the run takes more of the disk.
Settings enough_of(const TrainConfig& config, const Settings& remedies, bool on_any_disk,
                   Device& device, const MachineRates& rates) {
  std::int64_t most_disk = std::numeric_limits<std::int64_t>::max();
  const auto suffice = [&](const Settings& some) {
    const std::optional<RunPlan> plan = fitting_plan(with(config, some), device, rates);
    return plan && plan->needs.disk_total() <= most_disk;
  };
  Settings some;
  with(config, remedies, &some);  // that change something
  const std::optional<RunPlan> all = fitting_plan(with(config, some), device, rates);
  if (some.empty() || !all) return {};
  if (on_any_disk) most_disk = all->needs.disk_total() / 100 * 101;
  const auto first = [&](std::size_t count) {
    return Settings(some.begin(), some.begin() + static_cast<std::ptrdiff_t>(count));
  };
  std::size_t too_few = 0, enough = some.size();
  while (enough - too_few > 1) {
    const std::size_t middle = (too_few + enough) / 2;
    (suffice(first(middle)) ? enough : too_few) = middle;
  }
  some = first(enough);
  // Of these the dearest that are not needed go first.
  for (std::size_t i = some.size() - 1; i-- > 0;) {
    Settings fewer = some;
    fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
    if (suffice(fewer)) some = std::move(fewer);
  }
  return some;
}

}  // namespace

Remedies find_remedies(const TrainConfig& asked, std::int64_t chunk, Device& device,
                       const MachineRates& rates) {
  // To choose a chunk takes longer than to see whether a run fits.
  TrainConfig config = asked;
  config.training.chunk = chunk;
  // Sparse layers need memory of their own, so more changes are not always better.
  const Settings some = that_keep_attention(device.kind() == DeviceKind::kShapes),
                 more = joined(some, that_attend_to_less());
  Settings enough;
  for (const bool on_any_disk : {false, true})
    for (const Settings& remedies : on_any_disk ? std::array{more, some} : std::array{some, more})
      if (enough.empty())
        enough = enough_of(
            config, on_any_disk ? joined(remedies, {{use_any_disk, disk_setting}}) : remedies,
            on_any_disk, device, rates);
  if (enough.empty()) return {asked, {}};
  Settings applied;
  config = with(config, enough, &applied);
  const std::optional<RunPlan> plan = fitting_plan(config, device, rates);
  LS_CHECK(plan, "{} settings", applied.size());
  Remedies found{std::move(config), {}};
  for (const Remedy& r : applied)
    if (std::string setting = r.setting(*plan); !setting.empty())
      found.settings.push_back(std::move(setting));
  // What no setting names is chosen for the run with the others.
  const bool named = std::ranges::any_of(
      found.settings, [](const std::string& setting) { return setting.starts_with("training."); });
  if (asked.training.chunk || named) return found;
  TrainConfig automatic = found.config;
  automatic.training.chunk.reset();
  if (fitting_plan(automatic, device, rates))
    found.config = std::move(automatic);
  else
    found.settings.push_back(chunk_setting(*plan));
  return found;
}

}  // namespace longstride
