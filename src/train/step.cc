#include "train/step.h"

#include <algorithm>
#include <deque>
#include <utility>
#include <vector>

#include "attention/coded_pages.h"
#include "base/log.h"
#include "base/random.h"
#include "ops/kernel_choices.h"
#include "ops/kernel_libraries.h"
#include "ops/loss_head.h"
#include "ops/paged_attention.h"
#include "plan/pipeline_simulation.h"
#include "tensor/dtype_words.h"
#include "train/page_type_choice.h"
#include "train/step_trace.h"
#include "train/step_work.h"

namespace longstride {
namespace {

// The time of a stream, split by phase, and by task where somebody wants to know.
class PhaseClock {
 public:
  explicit PhaseClock(Stream& stream) : stream_(stream) { stream_.record_elapsed(nullptr); }
  // From now on time counts towards `phase`, and also towards *task unless that is null.
  void enter(double& phase, double* task) {
    if (phase_ != nullptr && (phase_ != &phase || task_ != task)) stop();
    phase_ = &phase;
    task_ = task;
  }
  void stop() {
    if (phase_ == nullptr) return;
    if (task_ != nullptr) shared_.push_back({phase_, task_, 0.0});
    stream_.record_elapsed(task_ != nullptr ? &shared_.back().seconds : phase_);
    phase_ = nullptr;
  }
  // After stop() and the stream's next synchronize(): completes the sums.
  void finish() {
    for (const Shared& s : std::exchange(shared_, {})) {
      *s.phase += s.seconds;
      *s.task += s.seconds;
    }
  }

 private:
  struct Shared {
    double *phase, *task;
    double seconds;
  };
  Stream& stream_;
  double *phase_ = nullptr, *task_ = nullptr;
  std::deque<Shared> shared_;  // the stream writes into it later
};

// Where the seconds of a sequence's tasks are wanted.
class TaskTimes {
 public:
  TaskTimes(const StepSchedule& schedule, const Stage& stage, std::vector<double>* into)
      : into_(into) {
    if (into_ == nullptr) return;
    cuts_ = pipeline_cuts(schedule, stage);
    into_->assign(cuts_.size(), 0.0);
  }
  // Where those of the next task count.
  double* next() {
    if (into_ == nullptr) return nullptr;
    if (cuts_[next_]) first_ = next_;
    ++next_;
    return &(*into_)[first_];
  }

 private:
  std::vector<double>* into_;
  std::vector<bool> cuts_;
  std::size_t next_ = 0, first_ = 0;
};

// What a stage receives in a sequence.
std::vector<Neighbours::Coming> coming_to(const Stage& stage, const StepSchedule& schedule,
                                          const SequenceLayout& layout, std::int64_t token_bytes) {
  std::vector<Neighbours::Coming> all;
  for (const Episode& episode : schedule.episodes)
    for (const Task& task : episode.tasks) {
      const bool gradient = task.kind == TaskKind::kReceiveGradient,
                 input = task.kind == TaskKind::kEmbed && task.output && stage.receives;
      if (gradient || input)
        all.push_back({gradient, stage.heads.rows(layout.chunk_size(task.chunk)) * token_bytes});
    }
  return all;
}

bool is_backward(TaskKind kind) {
  return kind == TaskKind::kHead || kind == TaskKind::kLayerBackward ||
         kind == TaskKind::kRelease || kind == TaskKind::kEmbedBackward ||
         kind == TaskKind::kReceiveGradient || kind == TaskKind::kSendGradient;
}

}  // namespace

DType compute_type(const Device& device, const std::string& compute) {
  if (compute == "auto") return device.computes_in_bf16() ? DType::kBF16 : DType::kF32;
  const std::optional<DType> type = dtype_of_word(compute);
  if (!type) throw Error(fmt::format("compute is '{}'", compute), "see longstride --help");
  if (*type == DType::kBF16 && !device.computes_in_bf16())
    throw Error(fmt::format("{} does not compute in bf16", device.name()),
                "choose f32 (or auto) for compute, or another device");
  return *type;
}

NumericsRecord choose_numerics(Device& device, const ModelConfig& config, std::int64_t chunk_tokens,
                               std::int64_t page_tokens, const NumericsChoice& choice) {
  const auto meaning = [](const char* what, const auto& found, const std::string& word) {
    if (!found) throw Error(fmt::format("{} is '{}'", what, word), "see longstride --help");
    return *found;
  };
  NumericsRecord record;
  record.determinism =
      meaning("determinism", determinism_of_word(choice.determinism), choice.determinism);
  record.compute = compute_type(device, choice.compute);
  record.sparse = choice.sparse;
  record.quantize = choice.quantize;
  record.tied_apart = choice.tied_apart;
  record.data_groups = choice.data_groups;
  record.chunk_tokens = chunk_tokens;
  record.page_tokens = page_tokens;
  record.head_block_rows = ops::loss_head_block_rows(device.stream(), config.vocabulary);
  choose_page_types(choice, config, record);
  record.device = device.name();
  record.kernels = ops::kernel_libraries(device);
  return record;
}

namespace {

ops::PagedAttentionReserve attention_of(const ModelConfig& config, const NumericsRecord& numerics,
                                        std::int64_t tokens, const HeadShare& heads) {
  // A window that covers the whole sequence counts as dense.
  const std::int64_t chunk = std::min(tokens, numerics.chunk_tokens),
                     pages = (tokens + numerics.page_tokens - 1) / numerics.page_tokens;
  std::int64_t keys = 0;
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    const std::int64_t window = config.windows[static_cast<std::size_t>(layer)];
    keys = std::max(keys, numerics.sparse.is_sparse(layer) ? chunk
                          : window == 0                    ? tokens
                                                           : std::min(window, tokens));
  }
  return {{.tokens = chunk,
           .query_heads = config.query_heads / heads.ranks,
           .kv_heads = config.kv_heads / heads.ranks,
           .head_size = config.head_size,
           .page_tokens = numerics.page_tokens,
           .compute = numerics.compute,
           .selected_pages = std::min(numerics.sparse.most_pages(), pages),
           .union_pages = std::min(numerics.sparse.selection.union_pages, pages)},
          keys,
          attention_scale(config),
          numerics.exact()};
}

// A plan is for all processes that share heads; what they take of it depends on their slices.
StepPlan of_rank(StepPlan plan, const HeadExchange* exchange) {
  HeadShare& heads = plan.schedule.stage.heads;
  const HeadShare here = exchange == nullptr ? HeadShare() : exchange->share();
  LS_CHECK(heads.ranks == here.ranks, "a plan for {} processes that share heads, and there are {}",
           heads.ranks, here.ranks);
  heads = here;
  return plan;
}

}  // namespace

void reserve_libraries(Device& device, const ModelConfig& config, const NumericsRecord& numerics,
                       std::int64_t tokens, const HeadShare& heads) {
  ops::paged_attention_reserve(device.stream(), attention_of(config, numerics, tokens, heads));
}

std::int64_t library_bytes(Device& device, const ModelConfig& config,
                           const NumericsRecord& numerics, std::int64_t tokens,
                           const HeadShare& heads) {
  return ops::paged_attention_reserved_bytes(device.stream(),
                                             attention_of(config, numerics, tokens, heads));
}

StepRunner::StepRunner(const ModelConfig& config, const ParameterSet& weights,
                       const ParameterSet& gradients, const NumericsRecord& numerics, StepPlan plan,
                       const MakeMover& make_mover, Neighbours* neighbours, HeadExchange* exchange)
    : config_(config),
      numerics_(numerics),
      gradient_set_(gradients),
      weights_(weights.model()),
      gradients_(gradients.model()),
      device_(weights.device()),
      plan_(of_rank(std::move(plan), exchange)),
      neighbours_(neighbours),
      retained_(device_, plan_.retained(config, numerics.compute)),
      summaries_(device_, kv_shape(config, numerics, plan_.schedule.stage.heads), numerics.sparse,
                 plan_.layout().pages()) {
  LS_CHECK(plan_.chunk_tokens == numerics.chunk_tokens && plan_.page_tokens == numerics.page_tokens,
           "a plan for chunks of {} and pages of {}, a record of {} and {}", plan_.chunk_tokens,
           plan_.page_tokens, numerics.chunk_tokens, numerics.page_tokens);
  for (const ParameterSpec& spec : gradients.specs())
    LS_CHECK(
        (!spec.place.is_head_too || !spec.trainable || spec.head_apart == numerics.tied_apart) &&
            (!spec.head_apart || numerics.tied_apart),
        "{}: head and lookup are summed {}, and the record says otherwise", spec.name,
        spec.head_apart ? "apart" : "together");
  ops::use_kernel_choices(device_.stream(), numerics.choices);
  const HeadShare& heads = plan_.schedule.stage.heads;
  reserve_libraries(device_, config, numerics, plan_.max_tokens, heads);
  rope_ = std::make_unique<RopeOnDevice>(device_, config);
  arena_ = device_.allocate(plan_.memory.workspace, "workspace");
  store_ = std::make_unique<KvStore>(device_, kv_shape(config, numerics, heads), plan_.pages,
                                     make_mover ? make_mover(device_) : nullptr);
  if (plan_.wide_pages.any())
    coded_ =
        std::make_unique<CodedPages>(device_, *store_, plan_.wide_pages, plan_.layout().pages());
  if (const std::vector<Retention> saved = plan_.saved(); !saved.empty())
    offloaded_ = std::make_unique<OffloadedActivations>(
        device_, make_mover ? make_mover(device_) : device_.make_mover(),
        ActivationSizes(config_, numerics_.compute, heads), config_.layers, plan_.longest_chunk(),
        saved, plan_.activations);
  runner_ = std::make_unique<ChunkRunner>(RunnerContext{.device = device_,
                                                        .config = config_,
                                                        .numerics = numerics_,
                                                        .weights = weights_,
                                                        .gradients = gradients_,
                                                        .rope = rope_->views(),
                                                        .retained = retained_,
                                                        .summaries = summaries_,
                                                        .offloaded = offloaded_.get(),
                                                        .weighted = plan_.weighted,
                                                        .stage = plan_.schedule.stage,
                                                        .neighbours = neighbours,
                                                        .exchange = exchange},
                                          workspace_,
                                          coded_ ? static_cast<PageStore&>(*coded_) : *store_);
  runner_->reserve(plan_.layout());
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
  // A recomputed chunk, and a last one as long as in a full sequence: together they run all
  // products.
  const std::int64_t chunk = numerics_.chunk_tokens, rest = plan_.max_tokens % chunk;
  const auto tokens =
      static_cast<std::size_t>(std::min(plan_.max_tokens, chunk + (rest == 0 ? chunk : rest)));
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

void StepRunner::use_kernels(const ops::KernelChoices& choices) {
  numerics_.choices = choices;
  ops::use_kernel_choices(device_.stream(), choices);
}

MovedBytes StepRunner::moved() const {
  return offloaded_ ? store_->moved() + offloaded_->moved() : store_->moved();
}

OffloadTimes StepRunner::take_times() {
  OffloadTimes times = store_->take_times();
  if (offloaded_) times += offloaded_->take_times();
  return times;
}

SequenceResult StepRunner::run(const SequenceInput& input, double scale,
                               const std::function<bool()>& should_stop,
                               const OnSequenceProgress& on_progress) {
  return run_tasks(input, scale, plan_.schedule, should_stop, on_progress);
}

SequenceResult StepRunner::evaluate(const SequenceInput& input,
                                    const std::function<bool()>& should_stop,
                                    const OnSequenceProgress& on_progress) {
  return run_tasks(input, 1.0, plan_.schedule.without_backward(), should_stop, on_progress);
}

SequenceResult StepRunner::run_scored(const SequenceInput& input, const WeightsOf& weights_of,
                                      double scale, const std::function<bool()>& should_stop,
                                      const OnSequenceProgress& on_progress) {
  return run_tasks(input, scale, plan_.schedule.scoring(plan_.layout().chunks()), should_stop,
                   on_progress, weights_of);
}

SequenceResult StepRunner::run_tasks(const SequenceInput& input, double scale,
                                     const ScheduleOptions& options,
                                     const std::function<bool()>& should_stop,
                                     const OnSequenceProgress& on_progress,
                                     const WeightsOf& weights_of) {
  const SequenceLayout layout{static_cast<std::int64_t>(input.tokens.size()),
                              numerics_.chunk_tokens,
                              numerics_.page_tokens,
                              {input.document_starts.begin(), input.document_starts.end()}};
  LS_CHECK(layout.tokens <= plan_.max_tokens && input.targets.size() == input.tokens.size(),
           "{} tokens and {} targets, room for {}", layout.tokens, input.targets.size(),
           plan_.max_tokens);
  const StepSchedule schedule = make_step_schedule(layout, options);
  runner_->begin_sequence(layout, input, static_cast<float>(scale));
  store_->begin(schedule);
  if (coded_) coded_->begin(layout.tokens, layout.chunk_tokens);
  if (offloaded_) offloaded_->begin(schedule);
  if (neighbours_ != nullptr)
    neighbours_->begin(coming_to(options.stage, schedule, layout,
                                 config_.hidden_size * size_of(numerics_.compute)));

  SequenceResult result;
  const MovedBytes before = moved();
  take_times();  // resets the times
  PhaseClock clock(device_.stream());
  TaskTimes times(schedule, options.stage, input.task_seconds);
  StepTrace trace(device_.stream(), options.stage.receives);
  const StepWork work(config_, numerics_, layout, plan_.trained);
  const double all_work = on_progress ? work.flops(schedule) : 1.0;
  double done = 0;
  bool scored = false;
  try {
    for (std::int64_t number = 0; number < std::ssize(schedule.episodes); ++number) {
      const Episode& episode = schedule.episodes[static_cast<std::size_t>(number)];
      trace.enter(episode);
      if (options.scores && !scored && episode.kind == EpisodeKind::kRecompute) {
        scored = true;
        runner_->sums();  // waits for the losses
        runner_->weigh(weights_of(runner_->losses()));
      }
      const PlacedEpisode& placed = plan_.placed(episode);
      workspace_.start_replay(arena_->data(), placed.trace, placed.placement.offsets);
      for (const Task& task : episode.tasks) {
        if (should_stop && should_stop()) throw Interrupted("stopped between two tasks");
        const bool backward = is_backward(task.kind) && !task.ends_chunk,
                   recompute = !backward && episode.kind == EpisodeKind::kRecompute;
        clock.enter(backward    ? result.seconds.backward
                    : recompute ? result.seconds.recompute
                                : result.seconds.forward,
                    times.next());
        if (on_progress) {
          on_progress({backward    ? "backward"
                       : recompute ? "recompute"
                                   : "forward",
                       task.chunk, layout.chunks(), number, done / all_work});
          done += work.flops(task);
        }
        const TraceSpan span = trace.task(task);
        runner_->run(task);
        device_.stream().throttle();
      }
      runner_->end_episode();
      workspace_.finish_replay();
    }
    clock.stop();
    trace.wait();
    device_.stream().synchronize();
    clock.finish();
    store_->finish();
    if (offloaded_) offloaded_->finish();
    if (neighbours_ != nullptr) neighbours_->end();
  } catch (...) {
    runner_->drop();
    workspace_.abandon();
    store_->release_all();
    throw;
  }

  const ChunkRunner::Sums& sums = runner_->sums();
  result.loss_sum = sums.loss;
  result.moved = moved() - before;
  result.move_times = take_times();
  result.selection = runner_->selected().counts();
  result.targets = sums.targets;
  result.correct = sums.correct;
  result.nonfinite_chunk = sums.nonfinite_chunk;
  return result;
}

}  // namespace longstride
