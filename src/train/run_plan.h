// Plan and memory needs of a training run, derived from its configuration before anything large is
// allocated. Plain data.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/sample_stream.h"
#include "model/adapter_directory.h"
#include "model/model_directory.h"
#include "model/stage_parts.h"
#include "plan/machine_rates.h"
#include "plan/step_plan.h"
#include "train/config.h"
#include "train/optimizer_state.h"
#include "train/resume_point.h"

namespace longstride {

// Source of the weights: a directory, or a preset with random ones.
struct ModelSource {
  ModelConfig config;  // with the user's rope settings
  std::int64_t positions_made_for = 0;
  std::vector<ParameterSpec> specs;
  std::optional<ModelDirectory> directory;
  std::vector<SideFile> side_files;  // of the directory; every save copies them
  // Low-rank adapters, and those to begin with.
  std::optional<AdapterConfig> adapter = {};
  std::optional<AdapterDirectory> adapter_source = {};

  std::int64_t trainable_parameters() const;
};
// With the rope settings, for training on `context` tokens, and quantized as the settings say.
ModelSource open_model_source(const ModelSourceConfig& config, std::int64_t context);
// As the directory is.
ModelSource open_model_source(const std::filesystem::path& directory);

// Space that saves need on the disk of checkpoint.directory.
struct SaveNeeds {
  std::int64_t bytes = 0;  // of one save
  std::int64_t more = 0;   // saves that will exist at once, in addition to the present ones
  // Free space, less what the run takes of the same disk. Nothing: not known.
  std::optional<std::int64_t> available = {};
};

struct RunNeeds {
  std::int64_t weights = 0, gradients = 0;
  std::int64_t optimizer = 0;       // on the device: all, or the slots that slices pass through
  std::int64_t optimizer_host = 0;  // in host memory, including disk buffers
  std::int64_t optimizer_disk = 0;
  // Of messages: in host memory, and on the device, which has all if it is host memory.
  std::int64_t messages = 0, messages_device = 0;
  StepMemory step;
  double saved_flops = 0;  // of recomputation, by activations that stay
  bool step_planned =
      true;  // false: weights and KV pages alone do not fit, so nothing else was planned
  std::int64_t available = 0;       // on the device: memory.gpu, or the free bytes less a reserve
  std::int64_t device_reserve = 0;  // that reserve (train/run_memory.h)
  std::int64_t host_available = 0;  // without the part that serves as the device
  std::int64_t disk_available = 0;  // memory.disk, or the free bytes less a reserve
  SaveNeeds saves;
  // On the device, besides the step's.
  std::int64_t fixed() const { return weights + gradients + optimizer + messages_device; }
  std::int64_t total() const { return fixed() + step.total(); }
  std::int64_t host_total() const { return optimizer_host + messages + step.host(); }
  std::int64_t disk_total() const { return optimizer_disk + step.disk(); }
};

// Where a process stands among those of a run.
struct RankPlace {
  std::int64_t stages = 1, stage = 0;
  // Processes with the same stage (train/group_sums.h): those that share heads are neighbours, and
  // work on the same sequences.
  std::int64_t shards = 1, shard = 0;
  std::int64_t heads = 1;                   // processes that share heads
  std::int64_t on_host = 1, on_device = 1;  // processes that share this one's memory
  bool direct = false;                      // messages go between the devices themselves
  bool several() const { return stages * shards > 1; }
  HeadShare head_share() const { return {heads, shard % heads}; }
  // Pipelines, and the one that this process belongs to.
  std::int64_t pipelines() const { return shards / heads; }
  std::int64_t pipeline() const { return shard / heads; }
  // Those that share heads follow each other, then the stages of a pipeline.
  std::int64_t rank_of(std::int64_t of_shard, std::int64_t of_stage) const {
    return (of_shard / heads * stages + of_stage) * heads + of_shard % heads;
  }
  std::int64_t rank() const { return rank_of(shard, stage); }
  // Its part in a run; sharers of memory apart.
  static RankPlace of_rank(std::int64_t rank, std::int64_t ranks, std::int64_t stages,
                           std::int64_t heads) {
    const std::int64_t pipeline = rank / (stages * heads);
    return {.stages = stages,
            .stage = rank / heads % stages,
            .shards = ranks / stages,
            .shard = pipeline * heads + rank % heads,
            .heads = heads};
  }
};

struct RunPlan {
  TrainConfig config;
  ModelSource model;  // all of it
  RankPlace place = {};
  // Set by plan_memory: where stages begin, and the number of layers; and this process's part.
  std::vector<std::int64_t> cuts = {};
  StageParts part = {};
  std::shared_ptr<const Corpus> corpus;                     // all of it
  std::vector<std::shared_ptr<const Corpus>> sources = {};  // of data.mix; empty: no mix
  std::unique_ptr<SampleStream> samples;
  bool drops_stub = true;  // SampleOptions::drop_stub
  // Of evaluations during the run; null: there are none.
  std::shared_ptr<const Corpus> eval_corpus = {};
  std::unique_ptr<SampleStream> eval_samples = {};
  std::int64_t eval_count() const;    // samples of an evaluation
  std::optional<ResumePoint> resume;  // the model is then the checkpoint's
  NumericsRecord numerics;
  std::optional<StepPlan> step;  // what the run executes; absent if it cannot fit
  bool packed = false;           // sequences may hold several documents
  bool weighted = false;         // targets of the training data have weights
  bool interactive = false;      // sequences may be scored, and have weights
  bool evaluates = false;        // sequences are also evaluated, even without eval_samples
  StateOptions state;            // of the optimizer
  RunNeeds needs;
  std::optional<RunNeeds> worst_needs = {};  // of several processes: those of the worst, if known
};

// Opens and checks everything the configuration names. Throws Error; a run that does not fit is
// refused only by check_fits, so that a dry run may still show the numbers. A resumed run does not
// need the model it started from.
RunPlan plan_run(const TrainConfig& config, Device& device,
                 std::optional<ResumePoint> resume = std::nullopt, const RankPlace& place = {});
// The part of it that needs neither data nor memory: model, attention, record. The device may be
// one of shapes; plan_memory (run_memory.h) completes such a plan.
RunPlan plan_shapes(const TrainConfig& config, Device& device);
// Throws Error with the numbers and what to change if the device, the host or the disk has too
// little.
void check_fits(const RunPlan& plan);

}  // namespace longstride
