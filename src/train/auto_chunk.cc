#include "train/auto_chunk.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>

#include "base/error.h"
#include "plan/machines.h"
#include "plan/step_cost.h"
#include "train/run_memory.h"

namespace longstride {
namespace {

constexpr std::int64_t kShortest = 1024, kLongest = 16384, kLongestSparse = 4096;
// Longer contexts get the chunk of this one: plans of any length would take their time.
constexpr std::int64_t kMostTokens = std::int64_t{4} << 20;
constexpr double kNoLoss = 1.01;

std::int64_t rounded_to(std::int64_t chunk, std::int64_t page) {
  return (chunk + page - 1) / page * page;
}

// By the name of a GPU or of a machine in the table. One that is not there is taken for an H100:
// here only ratios matter.
MachineRates known_rates(const std::string& name) {
  if (const MachineRates* known = machine_with(name)) return *known;
  const std::vector<std::string> names = machine_names();
  return find_machine(std::ranges::find(names, name) != names.end() ? name : "h100");
}

std::vector<std::int64_t> chunks_for(const ChunkCase& run) {
  std::vector<std::int64_t> chunks = {rounded_to(kShortest, run.page)};
  const std::int64_t longest =
      std::min(run.numerics.sparse.any() ? kLongestSparse : kLongest, run.context);
  while (chunks.back() < longest) chunks.push_back(rounded_to(2 * chunks.back(), run.page));
  return chunks;
}

// All the memory it has.
std::int64_t whole_memory(const Device& device) {
  return device.used_bytes() + device.available_bytes();
}

// Seconds of a sequence with chunks of so many tokens; nothing if it does not fit.
std::optional<double> seconds_with(std::int64_t chunk, const ChunkCase& run, Device& machine,
                                   const MachineRates& rates) {
  RunPlan plan;
  plan.config.training.context = std::min(run.context, kMostTokens);
  plan.config.training.chunk = chunk;
  plan.config.training.page = run.page;
  plan.config.memory.activations = "device";  // how much the host could take is not known here
  plan.model.config = run.model;
  plan.model.specs = run.specs;
  try {
    plan.numerics = choose_numerics(machine, run.model, chunk, run.page, run.numerics);
    plan_memory(plan, machine, rates);
    check_fits(plan);
    return predict_step(run.model, plan.numerics, *plan.step, rates).total();
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace

std::int64_t auto_chunk(const ChunkCase& run, const Device& device) {
  const std::vector<std::int64_t> chunks = chunks_for(run);
  if (device.shares_host_memory()) return chunks.front();  // a CPU
  const MachineRates rates = known_rates(device.name());
  const AbsentMachine memory{.device = device.name(),
                             .device_bytes = whole_memory(device),
                             .host_bytes = std::int64_t{1} << 50};
  const std::unique_ptr<Device> machine = make_shapes_device(device.runs_on(), memory);

  // Long ones take few plans and are mostly faster; once a shorter one is slower, the others are
  // too.
  std::optional<std::int64_t> best;
  std::optional<double> least;
  for (auto chunk = chunks.rbegin(); chunk != chunks.rend(); ++chunk) {
    const std::optional<double> seconds = seconds_with(*chunk, run, *machine, rates);
    if (!seconds) continue;
    if (least && *seconds > kNoLoss * *least) break;
    best = *chunk;
    least = std::min(*seconds, least.value_or(*seconds));
  }
  return best.value_or(chunks.front());
}

std::int64_t auto_forward_chunk(const ChunkCase& run, Device& device) {
  const std::vector<std::int64_t> chunks = chunks_for(run);
  if (device.shares_host_memory()) return chunks.front();
  const std::int64_t room = (whole_memory(device) - ParameterSet::bytes_needed(run.specs)) / 4;
  for (auto chunk = chunks.rbegin(); chunk + 1 != chunks.rend(); ++chunk) {
    const NumericsRecord numerics =
        choose_numerics(device, run.model, *chunk, run.page, run.numerics);
    const StepPlan plan = plan_step(device, run.model, run.specs, numerics,
                                    {.max_tokens = 2 * *chunk, .forward_only = true});
    if (plan.memory.workspace <= room) return *chunk;
  }
  return chunks.front();
}

}  // namespace longstride
