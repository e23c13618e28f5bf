#include "cli/bench_stage.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/random.h"
#include "model/host_values.h"
#include "ops/elementwise.h"
#include "plan/stage_spread.h"

namespace longstride::cli {
namespace {

class NoiseNeighbours : public Neighbours {
 public:
  NoiseNeighbours(Device& device, DType type, const Shape& shape)
      : device_(device), memory_(device.allocate(shape.elements() * size_of(type), "noise")) {
    Random random(1);
    std::vector<float> values(static_cast<std::size_t>(shape.elements()));
    for (float& v : values) v = static_cast<float>(random.uniform() - 0.5);
    std::vector<std::byte> bytes(values.size() * static_cast<std::size_t>(size_of(type)));
    store_floats(values, type, bytes.data());
    device.copy_from_host(memory_->data(), bytes.data(), std::ssize(bytes));
    noise_ = View(memory_->data(), type, shape);
  }
  void receive(View x_TD) override { fill(x_TD); }
  void receive_gradient(View dx_TD) override { fill(dx_TD); }
  void send(ConstView) override {}
  void send_gradient(ConstView) override {}

 private:
  void fill(const View& to) { ops::convert(device_.stream(), {noise_.rows(0, to.dim(0)), to}); }

  Device& device_;
  std::unique_ptr<Memory> memory_;
  View noise_;
};

}  // namespace

StageParts stage_of(const StepBenchOptions& o, const ModelConfig& config,
                    const std::vector<ParameterSpec>& parameters, const NumericsRecord& numerics,
                    std::int64_t context) {
  if (o.stages > config.layers)
    throw Error(fmt::format("--stages is {}, but there are {} layers", o.stages, config.layers),
                "a stage has at least one layer");
  if (o.stages == 1 && o.stage > 0)
    throw Error("--stage without --stages", "add --stages 4, for instance");
  if (o.stage >= o.stages)
    throw Error(fmt::format("--stage is {}, but there are {} stages", o.stage, o.stages),
                fmt::format("give 0 to {}", o.stages - 1));
  const std::vector<std::int64_t> cuts = spread_layers(config, numerics, context, o.stages);
  const auto stage = static_cast<std::size_t>(o.stage);
  return stage_parts(config, parameters, numerics, cuts[stage], cuts[stage + 1]);
}

std::unique_ptr<Neighbours> noise_neighbours(const StageParts& parts, Device& device,
                                             std::int64_t tokens) {
  if (!parts.stage.receives && !parts.stage.sends) return nullptr;
  return std::make_unique<NoiseNeighbours>(
      device, parts.numerics.compute,
      Shape({std::min(tokens, parts.numerics.chunk_tokens), parts.config.hidden_size}));
}

std::optional<PipelineRun> simulate_equal_stages(const StepPlan& plan, const SequenceLayout& layout,
                                                 const std::vector<double>& task_seconds,
                                                 std::int64_t stages, std::int64_t token_bytes,
                                                 const PipelineLink& link) {
  const Stage& stage = plan.schedule.stage;
  const StepSchedule schedule = make_step_schedule(layout, plan.schedule);
  const auto in_pairs = [](const Episode& e) { return e.kind == EpisodeKind::kWavefront; };
  if (!(stage.receives && stage.sends) && std::ranges::any_of(schedule.episodes, in_pairs))
    return std::nullopt;
  PipelineInput input{
      .stages = equal_stages(pipeline_tasks(schedule, stage, task_seconds), stage, stages),
      .link = link};
  for (std::int64_t c = 0; c < layout.chunks(); ++c)
    input.chunk_bytes.push_back(layout.chunk_size(c) * token_bytes);
  return simulate_pipeline(input);
}

}  // namespace longstride::cli
