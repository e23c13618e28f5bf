#include "train/step.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/random.h"
#include "model/rope_frequencies.h"
#include "ops/kernel_choices.h"
#include "ops/kernel_libraries.h"
#include "ops/loss_head.h"
#include "ops/paged_attention.h"
#include "train/step_trace.h"

namespace longstride {
namespace {

// The time of a stream, split by what it is spent on.
class PhaseClock {
 public:
  explicit PhaseClock(Stream& stream) : stream_(stream) { stream_.lap(nullptr); }
  // What follows counts into `phase`.
  void enter(double& phase) {
    if (phase_ != nullptr && phase_ != &phase) stream_.lap(phase_);
    phase_ = &phase;
  }
  // The phases' sums hold all after the stream's next synchronize().
  void stop() {
    if (phase_ != nullptr) stream_.lap(std::exchange(phase_, nullptr));
  }

 private:
  Stream& stream_;
  double* phase_ = nullptr;
};

bool is_backward(TaskKind kind) {
  return kind == TaskKind::kHead || kind == TaskKind::kLayerBackward ||
         kind == TaskKind::kEmbedBackward;
}

// Arithmetic of a task, up to a factor: products of the layer, and attention by what it visits.
double work_of(const ModelConfig& config, const SequenceLayout& layout, const Task& task) {
  const auto tokens = static_cast<double>(layout.chunk_size(task.chunk)),
             hidden = static_cast<double>(config.hidden_size);
  if (task.kind == TaskKind::kHead)
    return 3 * tokens * hidden * static_cast<double>(config.vocabulary);
  if (task.layer < 0) return 0;
  const auto heads = static_cast<double>(config.query_heads * config.head_size),
             kv = static_cast<double>(config.kv_heads * config.head_size);
  if (task.only_kv) return 2 * tokens * hidden * kv;
  const double products =
      tokens * hidden * (2 * heads + 2 * kv + 3 * static_cast<double>(config.ffn_size));
  const double keys = static_cast<double>(task.visited.size() * layout.page_tokens);
  const double attention = 2 * tokens * heads * std::max(tokens / 2, keys - tokens / 2);
  return task.kind == TaskKind::kLayerBackward ? 2 * products + 2.5 * attention
                                               : products + attention;
}

double work_of(const ModelConfig& config, const SequenceLayout& layout,
               const StepSchedule& schedule) {
  double work = 0;
  for (const Episode& episode : schedule.episodes)
    for (const Task& task : episode.tasks) work += work_of(config, layout, task);
  return std::max(work, 1.0);
}

}  // namespace

NumericsRecord choose_numerics(Device& device, const ModelConfig& config, std::int64_t chunk_tokens,
                               std::int64_t page_tokens, const NumericsChoice& choice) {
  const std::string& compute = choice.compute;
  if (compute == "bf16" && !device.computes_in_bf16())
    throw Error(fmt::format("{} does not compute in bf16", device.name()),
                "choose f32 (or auto) for compute, or another device");
  NumericsRecord record;
  record.determinism = choice.determinism;
  record.kv_gradient_dtype = choice.kv_gradient_dtype;
  record.compute = compute == "auto" ? (device.computes_in_bf16() ? "bf16" : "f32") : compute;
  record.chunk_tokens = chunk_tokens;
  record.page_tokens = page_tokens;
  record.head_block_rows = ops::loss_head_block_rows(device.stream(), config.vocabulary);
  record.device = device.name();
  record.kernels = ops::kernel_libraries(device);
  return record;
}

void reserve_libraries(Device& device, const ModelConfig& config, const NumericsRecord& numerics,
                       std::int64_t tokens) {
  // A window that covers all there is counts as dense.
  std::int64_t keys = 0;
  for (const std::int64_t window : config.windows)
    keys = std::max(keys, window == 0 ? tokens : std::min(window, tokens));
  const DType compute = numerics.compute == "bf16" ? DType::kBF16 : DType::kF32;
  ops::paged_attention_reserve(device.stream(),
                               {{std::min(tokens, numerics.chunk_tokens), config.query_heads,
                                 config.kv_heads, config.head_size, numerics.page_tokens, compute},
                                keys,
                                attention_scale(config),
                                numerics.determinism == "exact"});
}

StepRunner::StepRunner(const ModelConfig& config, const ParameterSet& weights,
                       const ParameterSet& gradients, const NumericsRecord& numerics,
                       const StepOptions& options)
    : config_(config),
      numerics_(numerics),
      options_(options),
      gradient_set_(gradients),
      weights_(weights.model()),
      gradients_(gradients.model()),
      device_(weights.device()),
      plan_(plan_step(device_, config, weights.dtypes(), numerics, options)) {
  ops::use_kernel_choices(device_.stream(), numerics.choices);
  reserve_libraries(device_, config, numerics, options.max_tokens);
  const RopeFrequencies rope = rope_frequencies(config);
  const auto frequency_bytes = static_cast<std::int64_t>(rope.frequencies.size() * sizeof(double));
  frequencies_ = device_.allocate(frequency_bytes, "RoPE frequencies");
  device_.copy_from_host(frequencies_->data(), rope.frequencies.data(), frequency_bytes);
  arena_ = device_.allocate(plan_.memory.workspace, "workspace");
  store_ = std::make_unique<KvStore>(device_, kv_shape(config, numerics), plan_.room,
                                     options.make_mover ? options.make_mover(device_) : nullptr);
  const View frequencies(frequencies_->data(), DType::kF64, {config.head_size / 2});
  runner_ = std::make_unique<ChunkRunner>(
      RunnerContext{device_, config_, numerics_, weights_, gradients_, frequencies,
                    rope.attention_factor, options.rebuild_feed_forward},
      workspace_, store_.get());
  runner_->reserve({options.max_tokens, numerics.chunk_tokens, numerics.page_tokens, {0}});
}

StepRunner::~StepRunner() = default;

const ops::KernelChoices& StepRunner::choose_kernels(const std::function<bool()>& should_stop) {
  Stream& stream = device_.stream();
  if (!ops::chooses_kernels(stream)) return numerics_.choices;
  const std::string machine = fmt::format("{}, {}", numerics_.device, numerics_.kernels);
  ops::KernelChoices known = remembered_choices(kernel_cache_file(), machine);
  for (const auto& [what, how] : numerics_.choices) known[what] = how;
  try {
    ops::use_kernel_choices(stream, known);
  } catch (const Error& e) {
    log_warning("{}: {}; kernels are measured anew", kernel_cache_file().string(), e.what());
    ops::use_kernel_choices(stream, numerics_.choices);
  }
  // A chunk that is recomputed, and a last one as long as that of a full sequence: all products.
  const std::int64_t chunk = numerics_.chunk_tokens, rest = options_.max_tokens % chunk;
  const auto tokens =
      static_cast<std::size_t>(std::min(options_.max_tokens, chunk + (rest == 0 ? chunk : rest)));
  std::vector<std::int32_t> noise(tokens);
  Random random(0);
  for (std::int32_t& token : noise)
    token = static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(config_.vocabulary)));
  const std::vector<std::int64_t> documents = {0};
  {
    const ops::ChoosingKernels choosing(stream);
    run({noise, noise, documents}, 1.0 / static_cast<double>(tokens), should_stop);
    numerics_.choices = choosing.choices();
  }
  device_.zero(gradient_set_.data(), gradient_set_.bytes());
  if (!std::ranges::includes(known, numerics_.choices))
    numerics_.choices = remember_choices(kernel_cache_file(), machine, numerics_.choices);
  ops::use_kernel_choices(stream, numerics_.choices);
  return numerics_.choices;
}

SequenceResult StepRunner::run(const SequenceInput& input, double scale,
                               const std::function<bool()>& should_stop,
                               const OnSequenceProgress& on_progress) {
  const SequenceLayout layout{static_cast<std::int64_t>(input.tokens.size()),
                              numerics_.chunk_tokens,
                              numerics_.page_tokens,
                              {input.document_starts.begin(), input.document_starts.end()}};
  LS_CHECK(layout.tokens <= options_.max_tokens && input.targets.size() == input.tokens.size(),
           "{} tokens and {} targets, room for {}", layout.tokens, input.targets.size(),
           options_.max_tokens);
  const StepSchedule schedule = make_step_schedule(
      layout, schedule_options(device_.kind(), config_, numerics_, options_.keep_chunks));
  runner_->begin_sequence(layout, input, static_cast<float>(scale));
  store_->begin(schedule);

  SequenceResult result;
  const MovedBytes before = store_->moved();
  store_->take_times();  // since then
  PhaseClock clock(device_.stream());
  StepTrace trace(device_.stream());
  const double all_work = on_progress ? work_of(config_, layout, schedule) : 1.0;
  double done = 0;
  try {
    for (const Episode& episode : schedule.episodes) {
      trace.enter(episode);
      const PlacedEpisode& placed = plan_.episodes.at({episode.kind, episode.chunks});
      workspace_.start_replay(arena_->data(), placed.trace, placed.placement.offsets);
      for (const Task& task : episode.tasks) {
        if (should_stop && should_stop()) throw Interrupted("stopped between two tasks");
        const bool backward = is_backward(task.kind),
                   recompute = !backward && episode.kind == EpisodeKind::kReplay;
        clock.enter(backward    ? result.backward_s
                    : recompute ? result.recompute_s
                                : result.forward_s);
        if (on_progress) {
          on_progress({backward    ? "backward"
                       : recompute ? "recompute"
                                   : "forward",
                       task.chunk, layout.chunks(), done / all_work});
          done += work_of(config_, layout, task);
        }
        const TraceSpan span = trace.task(task);
        runner_->run(task);
        device_.stream().pace();
      }
      workspace_.finish_replay();
    }
    clock.stop();
    trace.wait();
    device_.stream().synchronize();
    store_->finish();
  } catch (...) {
    runner_->drop();
    workspace_.abandon();
    store_->release_all();
    throw;
  }

  const ChunkRunner::Sums& sums = runner_->sums();
  result.loss_sum = sums.loss;
  result.moved = store_->moved() - before;
  result.move_times = store_->take_times();
  result.counted = sums.counted;
  result.correct = sums.correct;
  result.nonfinite_chunk = sums.nonfinite_chunk;
  return result;
}

}  // namespace longstride
