#include "schedule/step_schedule.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "schedule/page_counter.h"

namespace longstride {
namespace {

class Builder {
 public:
  Builder(const SequenceLayout& layout, const ScheduleOptions& options)
      : layout_(layout),
        options_(options),
        layers_(static_cast<std::int64_t>(options.windows.size())),
        has_selected_(options.sparse.any() ? static_cast<std::size_t>(layout.chunks() * layers_)
                                           : 0) {}

  StepSchedule build() {
    const std::int64_t chunks = layout_.chunks(), kept = std::min(options_.keep_chunks, chunks),
                       recomputed = chunks - kept;
    result_.packed = options_.packed;
    result_.sparse = options_.sparse.any();
    if (options_.forward_only) return build_forward_only();
    if (options_.scores) return build_scoring();
    for (std::int64_t c = 0; c < recomputed;) {
      const bool pair = options_.wavefront && options_.sparse.any() && c + 1 < recomputed;
      begin(pair ? EpisodeKind::kWavefront : EpisodeKind::kForward, pair ? 2 : 1);
      if (pair)
        forward_pair(c);
      else
        forward(c);
      c += pair ? 2 : 1;
    }
    begin(EpisodeKind::kKept, kept);
    for (std::int64_t c = recomputed; c < chunks; ++c) forward_kept(c);
    for (std::int64_t c = chunks - 1; c >= recomputed; --c)
      backward(c, std::vector(static_cast<std::size_t>(layers_), options_.within_episode));
    recompute_down_from(recomputed - 1);
    return std::move(result_);
  }

  StepSchedule build_scoring() {
    forward_to_losses();
    recompute_down_from(layout_.chunks() - 1);
    return std::move(result_);
  }

  void forward_to_losses() {
    for (std::int64_t c = 0; c < layout_.chunks(); ++c) {
      begin(EpisodeKind::kForward, 1);
      forward(c);
      if (!sends()) add(TaskKind::kHead, c).ends_chunk = true;
    }
  }

  void recompute_down_from(std::int64_t chunk) {
    for (std::int64_t c = chunk; c >= 0; --c) {
      begin(EpisodeKind::kRecompute, 1);
      backward(c, recompute(c));
      fetch_saved(c);
    }
  }

  StepSchedule build_forward_only() {
    forward_to_losses();
    for (std::int64_t c = layout_.chunks() - 1; c >= 0; --c) release_below(c, layers_);
    return std::move(result_);
  }

  Episode build_forward(std::int64_t chunk) {
    begin(EpisodeKind::kForward, 1);
    forward(chunk);
    return std::move(result_.episodes.back());
  }

  std::vector<Episode> build_single_forwards() {
    for (std::int64_t c = 0; c + 1 < layout_.chunks(); c += 2) {
      begin(EpisodeKind::kForward, 1);
      forward(c);
    }
    return std::move(result_.episodes);
  }

 private:
  using Segments = std::shared_ptr<const std::vector<KeySegment>>;

  std::int64_t first_trained() const { return options_.first_trained_layer; }
  // Whether the first forward pass of a chunk ends with its losses.
  bool to_losses() const { return options_.forward_only || options_.scores; }
  bool sends() const { return options_.stage.sends; }
  // Whether anything here or below is trained.
  bool has_backward() const { return options_.has_backward(); }
  // Whether that pass computes the last layer's output.
  bool to_output() const { return to_losses() || sends(); }

  void begin(EpisodeKind kind, std::int64_t chunks) {
    result_.episodes.push_back({kind, chunks, {}});
  }

  Task& add(TaskKind kind, std::int64_t chunk, std::int64_t layer = -1) {
    Task task;
    task.kind = kind;
    task.chunk = chunk;
    task.layer = layer;
    if (layer >= 0) {
      task.sparse = options_.sparse.is_sparse(layer);
      task.visited = layout_.visited_pages(chunk, window_of(layer));
      if (task.sparse) {
        const std::int64_t own = layout_.chunk_pages(chunk).size();
        task.most_visited =
            own + std::min(options_.sparse.selection.union_pages, task.visited.size() - own);
      }
    }
    return result_.episodes.back().tasks.emplace_back(std::move(task));
  }

  std::int64_t window_of(std::int64_t layer) const {
    return options_.sparse.is_sparse(layer) ? 0 : options_.windows[static_cast<std::size_t>(layer)];
  }

  // Layers with the same window share a chunk's lists, and so do sparse ones.
  Segments segments(const Task& task) {
    const std::int64_t window = window_of(task.layer);
    const bool backward = task.kind == TaskKind::kLayerBackward;
    if (task.chunk != segments_chunk_) segments_.clear();
    segments_chunk_ = task.chunk;
    Segments& list = segments_[{task.sparse ? kSparse : window, backward}];
    if (list) return list;
    ChunkKeys keys = layout_.keys(task.chunk, window);
    if (task.sparse) keys.kind = AttentionKind::kSparse;
    auto cut = std::make_shared<std::vector<KeySegment>>(
        cut_keys(keys, backward ? options_.backward_cut : options_.forward_cut));
    check_segments(*cut, keys);
    LS_CHECK(joined(*cut).is_all(), "keys {} to {} are not covered", keys.first, keys.end());
    return list = std::move(cut);
  }

  struct Activations {
    Retention held, retains, lasting, saved = {};
    bool output = false, output_lasts = false, append = false;
  };
  void add_forward(std::int64_t chunk, std::int64_t layer, const Activations& a) {
    Task& task = add(TaskKind::kLayerForward, chunk, layer);
    task.held = a.held;
    task.retains = a.retains | a.held;
    task.lasting = a.lasting;
    task.saved = a.saved;
    task.output = a.output;
    task.output_lasts = a.output_lasts;
    task.append = a.append;
    if (task.sparse && (task.append || task.attends())) task.selects = selects_first(chunk, layer);
    // A task that only selects leaves q to the one that attends, not to the backward pass.
    task.keys_too = task.retains.has(Retained::kQ) &&
                    (!task.selects || task.attends() || retained(chunk, layer).has(Retained::kQ));
    if (task.attends()) task.segments = segments(task);
    if (!a.append) return;
    task.appended = layout_.chunk_pages(chunk);
  }

  Task& last() { return result_.episodes.back().tasks.back(); }

  bool selects_first(std::int64_t chunk, std::int64_t layer) {
    return !std::exchange(has_selected_[static_cast<std::size_t>(chunk * layers_ + layer)], true);
  }

  bool input_lasts(std::int64_t chunk, std::int64_t layer) const {
    return layer < layers_ && options_.retained(chunk, layer).has(Retained::kInput);
  }

  // The first forward pass of a chunk that will be recomputed.
  void forward(std::int64_t chunk) {
    embed(chunk);
    for (std::int64_t layer = 0; layer < layers_; ++layer) forward_layer(chunk, layer);
    if (sends()) add(TaskKind::kSend, chunk).ends_chunk = true;
  }

  void embed(std::int64_t chunk) {
    Task& task = add(TaskKind::kEmbed, chunk);
    task.output = true;
    task.output_lasts = input_lasts(chunk, 0);
  }

  // On the device or off it.
  Retention retained(std::int64_t chunk, std::int64_t layer) const {
    return options_.retained(chunk, layer) | options_.saved(chunk, layer);
  }

  void forward_layer(std::int64_t chunk, std::int64_t layer) {
    add_forward(chunk, layer,
                {.retains = retained(chunk, layer),
                 .lasting = options_.retained(chunk, layer),
                 .saved = options_.saved(chunk, layer),
                 .output = layer < layers_ - 1 || to_output(),
                 .output_lasts = input_lasts(chunk, layer + 1),
                 .append = true});
    last().ends_chunk = layer == layers_ - 1 && !to_output();
  }

  // Two chunks, each layer of one after that of the other. A sparse layer is two tasks: one that
  // stores keys and values and selects, and one that attends. In between runs the other chunk.
  void forward_pair(std::int64_t chunk) {
    for (const std::int64_t c : {chunk, chunk + 1}) {
      embed(c);
      select(c, 0);
    }
    for (std::int64_t layer = 0; layer < layers_; ++layer)
      for (const std::int64_t c : {chunk, chunk + 1}) {
        attend(c, layer);
        if (layer + 1 < layers_)
          select(c, layer + 1);
        else if (sends())
          add(TaskKind::kSend, c).ends_chunk = true;
      }
  }

  // Whether a layer of the first forward pass is split, because it selects and then attends.
  bool is_split(std::int64_t chunk, std::int64_t layer) const {
    return options_.sparse.is_sparse(layer) &&
           (layer < layers_ - 1 || sends() || retained(chunk, layer).has(Retained::kAttention));
  }

  void select(std::int64_t chunk, std::int64_t layer) {
    if (!is_split(chunk, layer)) return;
    add_forward(chunk, layer,
                {.retains = kSelecting,
                 .lasting = options_.retained(chunk, layer) & kSelecting,
                 .append = true});
  }

  void attend(std::int64_t chunk, std::int64_t layer) {
    if (!is_split(chunk, layer)) return forward_layer(chunk, layer);
    const Retention all = retained(chunk, layer);
    add_forward(chunk, layer,
                {.held = kSelecting,
                 .retains = all,
                 .lasting = options_.retained(chunk, layer) - kSelecting,
                 .saved = options_.saved(chunk, layer),
                 .output = layer < layers_ - 1 || sends(),
                 .output_lasts = input_lasts(chunk, layer + 1)});
    last().retains = all;
    last().ends_chunk = layer == layers_ - 1 && !sends();
  }

  void forward_kept(std::int64_t chunk) {
    add(TaskKind::kEmbed, chunk).output = true;
    for (std::int64_t layer = 0; layer < layers_; ++layer)
      add_forward(chunk, layer, {.retains = within(layer), .output = true, .append = true});
    if (sends()) add(TaskKind::kSend, chunk);
  }

  // What a forward pass retains for the backward pass of the same episode.
  Retention within(std::int64_t layer) const {
    return layer < first_trained() ? Retention() : options_.within_episode;
  }

  // Recomputes the input of every layer that has a backward pass, and the last layer's output if
  // the head is here, from what the first forward pass retained. Returns what each layer holds
  // afterwards.
  std::vector<Retention> recompute(std::int64_t chunk) {
    std::vector<Retention> held;
    for (std::int64_t layer = 0; layer < layers_; ++layer) held.push_back(retained(chunk, layer));
    const auto has_input = [&](std::int64_t layer) {
      return held[static_cast<std::size_t>(layer)].has(Retained::kInput);
    };
    if (!has_backward()) {
      add(TaskKind::kEmbed, chunk);
      return held;
    }
    std::int64_t lowest = std::min(first_trained(), layers_ - 1);  // that is computed again
    while (lowest > 0 && !has_input(lowest)) --lowest;
    Task& first = add(TaskKind::kEmbed, chunk);
    first.output = !has_input(lowest);
    LS_CHECK(!first.output || !options_.stage.receives, "the input of chunk {} is not retained",
             chunk);
    for (std::int64_t layer = lowest; layer < layers_; ++layer) {
      const bool output = layer == layers_ - 1 ? !sends() : !has_input(layer + 1);
      if (!output && has_input(layer)) continue;
      Retention& now = held[static_cast<std::size_t>(layer)];
      add_forward(chunk, layer, {.held = now, .retains = within(layer), .output = output});
      now = now | within(layer);
    }
    return held;
  }

  void backward(std::int64_t chunk, const std::vector<Retention>& held) {
    if (has_backward()) add(sends() ? TaskKind::kReceiveGradient : TaskKind::kHead, chunk);
    for (std::int64_t layer = layers_ - 1; layer >= first_trained(); --layer) {
      const Retention now = held[static_cast<std::size_t>(layer)];
      if (now != Retention::all())
        add_forward(chunk, layer, {.held = now, .retains = Retention::all()});
      Task& task = add(TaskKind::kLayerBackward, chunk, layer);
      task.held = Retention::all();
      task.segments = segments(task);
      task.freed = layout_.chunk_pages(chunk);
    }
    release_below(chunk, first_trained());
    add(options_.stage.trains_below ? TaskKind::kSendGradient : TaskKind::kEmbedBackward, chunk);
  }

  // Frees a chunk's pages of the layers below `end`.
  void release_below(std::int64_t chunk, std::int64_t end) {
    for (std::int64_t layer = end - 1; layer >= 0; --layer) {
      Task& task = add(TaskKind::kRelease, chunk, layer);
      task.freed = layout_.chunk_pages(chunk);
    }
  }

  // Saved activations come back one task before the first that finds them.
  void fetch_saved(std::int64_t chunk) {
    std::vector<Task>& tasks = result_.episodes.back().tasks;
    std::vector<char> fetched(options_.windows.size());
    for (std::size_t i = 1; i < tasks.size(); ++i) {
      const std::int64_t layer = tasks[i].layer;
      if (layer < 0 || tasks[i].kind == TaskKind::kRelease ||
          std::exchange(fetched[static_cast<std::size_t>(layer)], true))
        continue;
      tasks[i - 1].fetches = options_.saved(chunk, layer);
      if (!tasks[i - 1].fetches.empty()) tasks[i - 1].fetches_layer = layer;
    }
  }

  const SequenceLayout& layout_;
  const ScheduleOptions& options_;
  const std::int64_t layers_;
  StepSchedule result_;
  std::vector<char> has_selected_;  // by chunk, then layer: a task before this one selects pages
  static constexpr std::int64_t kSparse = -1;  // in place of a window
  // What a task that only selects leaves for the one that attends.
  static constexpr Retention kSelecting{Retained::kInput, Retained::kQ};
  std::int64_t segments_chunk_ = -1;
  std::map<std::pair<std::int64_t, bool>, Segments> segments_;  // by (window, backward)
};

void find_peaks(const SequenceLayout& layout, std::int64_t layers, StepSchedule& schedule) {
  PageCounter counter(layers, layout.pages());
  PageCounts now;
  for (const Episode& episode : schedule.episodes)
    for (const Task& task : episode.tasks) {
      if (task.layer < 0) continue;
      const PageCounts made = counter.created(task), freed = PageCounter::freed(task);
      now.kv += made.kv;
      now.gradients += made.gradients;
      schedule.peak_kv_pages = std::max(schedule.peak_kv_pages, now.kv);
      schedule.peak_gradient_pages = std::max(schedule.peak_gradient_pages, now.gradients);
      now.kv -= freed.kv;
      now.gradients -= freed.gradients;
    }
  LS_CHECK(now.kv == 0 && now.gradients == 0, "{} KV and {} gradient pages left over", now.kv,
           now.gradients);
}

}  // namespace

LayerWork forward_work(const Task& task) {
  const auto missing = [&](Retained t) { return !task.held.has(t); };
  const auto wanted = [&](Retained t) { return task.retains.has(t); };
  LayerWork work;
  work.gate = missing(Retained::kGate) && (task.output || wanted(Retained::kGate));
  work.up = missing(Retained::kUp) && (task.output || wanted(Retained::kUp));
  work.mid =
      missing(Retained::kMid) && (task.output || work.gate || work.up || wanted(Retained::kMid));
  work.attention = missing(Retained::kAttention) && (work.mid || wanted(Retained::kAttention));
  work.q = missing(Retained::kQ) && (work.attention || wanted(Retained::kQ) || task.selects);
  return work;
}

bool Task::attends() const {
  return kind == TaskKind::kLayerBackward ||
         (kind == TaskKind::kLayerForward && forward_work(*this).attention);
}

bool TaskShape::operator<(const TaskShape& other) const {
  const auto fields = [](const TaskShape& t) {
    return std::tie(t.kind, t.chunk, t.layer, t.held, t.retains, t.lasting, t.saved, t.fetches,
                    t.fetches_layer, t.output, t.output_lasts, t.append, t.sparse, t.selects,
                    t.keys_too);
  };
  return fields(*this) < fields(other);
}

EpisodeShape shape_of(const Episode& episode) {
  EpisodeShape shape;
  shape.reserve(episode.tasks.size());
  for (const Task& task : episode.tasks) {
    if (task.kind == TaskKind::kRelease) continue;
    shape.push_back({.kind = task.kind,
                     .chunk = task.chunk - episode.tasks.front().chunk,
                     .layer = task.layer,
                     .held = task.held,
                     .retains = task.retains,
                     .lasting = task.lasting,
                     .saved = task.saved,
                     .fetches = task.fetches,
                     .fetches_layer = task.fetches_layer,
                     .output = task.output,
                     .output_lasts = task.output_lasts,
                     .append = task.append,
                     .sparse = task.sparse,
                     .selects = task.selects,
                     .keys_too = task.keys_too});
  }
  return shape;
}

namespace {

Retention entry(const std::vector<Retention>& list, std::size_t layers, std::int64_t chunk,
                std::int64_t layer) {
  const auto i = static_cast<std::size_t>(chunk) * layers + static_cast<std::size_t>(layer);
  return i < list.size() ? list[i] : Retention();
}

}  // namespace

Retention ScheduleOptions::retained(std::int64_t chunk, std::int64_t layer) const {
  return entry(across_episodes, windows.size(), chunk, layer);
}

Retention ScheduleOptions::saved(std::int64_t chunk, std::int64_t layer) const {
  return entry(offloaded, windows.size(), chunk, layer) - retained(chunk, layer);
}

ScheduleOptions ScheduleOptions::without_backward() const {
  ScheduleOptions options = *this;
  options.forward_only = true;
  options.wavefront = false;
  options.across_episodes.clear();
  options.offloaded.clear();
  return options;
}

ScheduleOptions ScheduleOptions::scoring(std::int64_t chunks) const {
  ScheduleOptions options = *this;
  options.scores = true;
  options.wavefront = false;
  const auto most =
      static_cast<std::size_t>(std::max<std::int64_t>(0, chunks - keep_chunks)) * windows.size();
  for (std::vector<Retention>* list : {&options.across_episodes, &options.offloaded})
    list->resize(std::min(list->size(), most));
  return options;
}

StepSchedule make_step_schedule(const SequenceLayout& layout, const ScheduleOptions& options) {
  layout.validate();
  LS_CHECK(options.keep_chunks >= 1, "keep_chunks {}", options.keep_chunks);
  LS_CHECK(!options.windows.empty(), "a model has layers");
  LS_CHECK(options.within_episode.has(Retained::kInput), "a layer's input is not kept");
  LS_CHECK(options.first_trained_layer >= 0 &&
               options.first_trained_layer <= std::ssize(options.windows),
           "first trained layer {} of {}", options.first_trained_layer, options.windows.size());
  LS_CHECK(!options.forward_only || (options.across_episodes.empty() && options.offloaded.empty()),
           "activations are retained, and there is no backward pass");
  StepSchedule schedule = Builder(layout, options).build();
  find_peaks(layout, std::ssize(options.windows), schedule);
  return schedule;
}

Episode forward_episode(const SequenceLayout& layout, const ScheduleOptions& options,
                        std::int64_t chunk) {
  return Builder(layout, options).build_forward(chunk);
}

std::vector<Episode> episodes_of_shorter(const SequenceLayout& layout,
                                         const ScheduleOptions& options) {
  if (!options.wavefront || !options.sparse.any()) return {};
  return Builder(layout, options).build_single_forwards();
}

}  // namespace longstride
