#include "train/pipeline_outlook.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/error.h"
#include "model/stage_parts.h"
#include "plan/stage_spread.h"
#include "tensor/dtype_words.h"
#include "train/outlook.h"
#include "train/run_memory.h"
#include "train/state_shards.h"

namespace longstride {
namespace {

constexpr double kAsFast = 1.005;

// The device with nothing on it; null: as it is, since it is host memory.
std::unique_ptr<Device> empty_device(const Device& device) {
  if (device.shares_host_memory()) return nullptr;
  return make_shapes_device(device.runs_on(),
                            {.device = device.name(),
                             .device_bytes = device.used_bytes() + device.available_bytes(),
                             .host_bytes = device.available_host_bytes()});
}

class Ranks {
 public:
  Ranks(const RunPlan& shapes, Device& device, const MachineRates& rates, const RankChoice& choice)
      : shapes_(shapes),
        rates_(rates),
        choice_(choice),
        own_(empty_device(device)),
        device_(own_ ? *own_ : device) {}

  // Throws Error if a stage does not fit.
  PipelineOutlook plan(const RankCut& cut) {
    const TrainingConfig& training = shapes_.config.training;
    const ModelConfig& config = shapes_.model.config;
    const std::int64_t chunk = std::min(*training.chunk, training.context);
    PipelineOutlook outlook{.ranks = choice_.ranks,
                            .cut = cut,
                            .groups = std::max(shapes_.numerics.data_groups, cut.data),
                            .context = training.context,
                            .chunk = chunk,
                            .batch = training.batch};
    const std::vector<std::int64_t> layers =
        spread_layers(config, shapes_.numerics, training.context, cut.pipeline);
    PipelineInput input{.link = choice_.link, .sequences = training.batch / cut.data};
    for (std::size_t s = 0; s + 1 < layers.size(); ++s) {
      outlook.stages.push_back(stage(layers, s, cut));
      input.stages.push_back(outlook.stages.back().tasks);
    }
    const std::int64_t width = config.hidden_size * size_of(shapes_.numerics.compute);
    // A rank sends its tokens to the rank with the same heads.
    const HeadShare heads{cut.heads};
    for (std::int64_t at = 0; at < training.context; at += chunk)
      input.chunk_bytes.push_back(heads.most_rows(std::min(chunk, training.context - at)) * width);
    outlook.run = simulate_pipeline(input);
    exchange(outlook);
    return outlook;
  }

 private:
  // Stages of the same layers between others are planned once.
  StageOutlook stage(const std::vector<std::int64_t>& cuts, std::size_t s, const RankCut& cut) {
    const StageParts parts = stage_parts(shapes_.model.config, shapes_.model.specs,
                                         shapes_.numerics, cuts[s], cuts[s + 1]);
    const std::int64_t shards = cut.data * cut.heads, ranks = cut.ranks();
    for (const auto& [other, outlook] : planned_) {
      if (other.shards != shards || other.heads != cut.heads || other.ranks != ranks ||
          other.parts.stage.receives != parts.stage.receives ||
          other.parts.stage.sends != parts.stage.sends ||
          other.parts.stage.trains_below != parts.stage.trains_below ||
          other.parts.config.windows != parts.config.windows ||
          other.parts.numerics.sparse.budgets != parts.numerics.sparse.budgets ||
          !same_parameters(other.parts.parameters, parts.parameters))
        continue;
      StageOutlook same = outlook;
      same.first_layer = cuts[s];
      return same;
    }
    StageOutlook outlook = plan_stage({.stages = std::ssize(cuts) - 1,
                                       .stage = static_cast<std::int64_t>(s),
                                       .shards = shards,
                                       .shard = largest_shard(parts.parameters, shards),
                                       .heads = cut.heads,
                                       .on_host = ranks});
    planned_.push_back({{parts, shards, cut.heads, ranks}, outlook});
    return outlook;
  }

  static bool same_parameters(const std::vector<ParameterSpec>& a,
                              const std::vector<ParameterSpec>& b) {
    return std::ranges::equal(a, b, [](const ParameterSpec& x, const ParameterSpec& y) {
      return x.place.layer == y.place.layer && x.shape == y.shape && x.dtype == y.dtype &&
             x.trainable == y.trainable;
    });
  }

  StageOutlook plan_stage(const RankPlace& place) {
    RunPlan plan;
    plan.config = shapes_.config;
    plan.model.config = shapes_.model.config;
    plan.model.specs = shapes_.model.specs;
    plan.numerics = shapes_.numerics;
    plan.packed = shapes_.packed;
    plan.weighted = shapes_.weighted;
    plan.evaluates = shapes_.evaluates || shapes_.eval_samples != nullptr;
    plan.place = place;
    // Where it is not set, there is a group for each pipeline.
    plan.numerics.data_groups = std::max(plan.numerics.data_groups, place.pipelines());
    plan_memory(plan, device_, rates_);
    check_fits(plan);
    const StageParts& parts = plan.part;
    StageOutlook outlook{.first_layer = parts.stage.first_layer, .layers = parts.config.layers};
    outlook.needs = plan.needs;
    outlook.step = predict_step(parts.config, parts.numerics, *plan.step, rates_, choice_.link);
    outlook.tasks = predict_stage(parts.config, parts.numerics, *plan.step, rates_, choice_.link);
    for (const ParameterSpec& spec : parts.parameters)
      if (spec.trainable) {
        outlook.trained_bytes += spec.shape.elements() * size_of(spec.dtype);
        outlook.gradient_bytes += spec.shape.elements() * size_of(DType::kF32);
      }
    UpdateBytes update = update_bytes(plan.needs);  // of the state it is a rank's part already
    update.weights /= static_cast<double>(place.shards);
    update.gradients /= static_cast<double>(place.shards);
    outlook.update_seconds = predict_update(update, rates_);
    return outlook;
  }

  // Gradients go to the rank that has their state, and come back as weights.
  void exchange(PipelineOutlook& outlook) const {
    // Those who share heads sum their gradients like data ranks.
    const std::int64_t data = outlook.cut.data, shards = data * outlook.cut.heads;
    const std::int64_t rounds = std::max<std::int64_t>(1, shapes_.numerics.data_groups / data);
    for (const StageOutlook& s : outlook.stages) {
      outlook.update_seconds = std::max(outlook.update_seconds, s.update_seconds);
      outlook.exchange_bytes =
          std::max(outlook.exchange_bytes,
                   (rounds * s.gradient_bytes + s.trained_bytes) / shards * (shards - 1));
    }
    outlook.exchange_seconds = choice_.link.seconds_of(static_cast<double>(outlook.exchange_bytes));
  }

  struct Key {
    StageParts parts;
    std::int64_t shards = 1, heads = 1, ranks = 1;
  };
  const RunPlan& shapes_;
  const MachineRates& rates_;
  const RankChoice& choice_;
  std::unique_ptr<Device> own_;
  Device& device_;
  std::vector<std::pair<Key, StageOutlook>> planned_;
};

}  // namespace

double PipelineOutlook::tokens_per_s() const {
  return static_cast<double>(batch) * static_cast<double>(context) / seconds();
}

PipelineOutlook plan_ranks(const RunPlan& shapes, Device& device, const MachineRates& rates,
                           const RankChoice& choice) {
  LS_CHECK(choice.ranks >= 1, "{} ranks", choice.ranks);
  if (rates.compute != shapes.numerics.compute)
    throw Error(fmt::format("ranks: the rates of {} are for activations in {}", rates.name,
                            word_of(rates.compute)),
                fmt::format("set numerics.compute to \"{}\", or choose another machine",
                            word_of(rates.compute)));
  const std::vector<RankCut> cuts = rank_cuts(shapes, choice.ranks);
  Ranks planner(shapes, device, rates, choice);
  std::vector<PipelineOutlook> fitting;
  std::optional<Error> refused;
  for (const RankCut& cut : cuts) try {
      fitting.push_back(planner.plan(cut));
    } catch (const Error& e) {
      // The first cut has the longest pipeline, whose stages are the smallest.
      if (!refused) refused = e;
    }
  if (fitting.empty()) {
    PipelineOutlook none;
    none.ranks = choice.ranks;
    none.context = shapes.config.training.context;
    none.batch = shapes.config.training.batch;
    none.cut = cuts.front();
    none.problem = refused->what();
    none.hint = refused->hint();
    return none;
  }
  const auto seconds_of = [](const PipelineOutlook& outlook) { return outlook.seconds(); };
  auto chosen = std::ranges::min_element(fitting, {}, seconds_of);
  const double enough = kAsFast * chosen->seconds();
  for (auto other = fitting.begin(); other != fitting.end(); ++other)
    if (other->seconds() <= enough && other->ranks_used() < chosen->ranks_used()) chosen = other;
  for (auto other = fitting.begin(); other != fitting.end(); ++other)
    if (other != chosen)
      chosen->others.push_back({other->cut, other->seconds(), other->run.idle_share()});
  std::ranges::stable_sort(chosen->others, {}, &OtherCut::seconds);
  return std::move(*chosen);
}

PipelineOutlook plan_ranks_and_chunk(const TrainConfig& config, const RunPlan& shapes,
                                     Device& device, const MachineRates& rates,
                                     const RankChoice& choice) {
  constexpr std::int64_t kShortest = 1024;
  constexpr double kWorthIt = 0.99;
  PipelineOutlook best = plan_ranks(shapes, device, rates, choice);
  if (config.training.chunk || choice.ranks == 1) return best;
  TrainConfig shorter = config;
  for (std::int64_t chunk = shapes.numerics.chunk_tokens / 2;
       chunk >= kShortest && chunk % config.training.page == 0; chunk /= 2) {
    if (chunk >= config.training.context) continue;
    shorter.training.chunk = chunk;
    RunPlan of_chunk = plan_shapes(shorter, device);
    of_chunk.packed = shapes.packed;
    of_chunk.weighted = shapes.weighted;
    of_chunk.evaluates = shapes.evaluates || shapes.eval_samples != nullptr;
    PipelineOutlook other = plan_ranks(of_chunk, device, rates, choice);
    if (!other.fits()) continue;
    if (best.fits() && other.seconds() > kWorthIt * best.seconds()) break;
    best = std::move(other);
    best.shorter_chunk = true;
  }
  return best;
}

}  // namespace longstride
