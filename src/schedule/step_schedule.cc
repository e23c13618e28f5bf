#include "schedule/step_schedule.h"

#include <algorithm>

#include "base/error.h"

namespace longstride {
namespace {

class Builder {
 public:
  Builder(const SequenceLayout& layout, const ScheduleOptions& options)
      : layout_(layout),
        options_(options),
        layers_(static_cast<std::int64_t>(options.windows.size())),
        first_touched_(options.windows.size(), layout.pages()) {}

  StepSchedule build() {
    const std::int64_t chunks = layout_.chunks(), kept = std::min(options_.keep_chunks, chunks),
                       replayed = chunks - kept;
    result_.packed = options_.packed;
    for (std::int64_t c = 0; c < replayed; ++c) {
      begin(EpisodeKind::kForward, 1);
      forward(c, false, true);
    }
    begin(EpisodeKind::kKept, kept);
    for (std::int64_t c = replayed; c < chunks; ++c) forward(c, true, true);
    for (std::int64_t c = chunks - 1; c >= replayed; --c) backward(c);
    for (std::int64_t c = replayed - 1; c >= 0; --c) {
      begin(EpisodeKind::kReplay, 1);
      forward(c, true, false);
      backward(c);
    }
    LS_CHECK(kv_pages_ == 0 && gradient_pages_ == 0, "{} KV and {} gradient pages left over",
             kv_pages_, gradient_pages_);
    return std::move(result_);
  }

 private:
  void begin(EpisodeKind kind, std::int64_t chunks) {
    result_.episodes.push_back({kind, chunks, {}});
  }

  Task& add(TaskKind kind, std::int64_t chunk, std::int64_t layer = -1) {
    Task task;
    task.kind = kind;
    task.chunk = chunk;
    task.layer = layer;
    task.position = position_++;
    if (layer >= 0) {
      const std::int64_t window = options_.windows[static_cast<std::size_t>(layer)];
      task.visited = layout_.visited_pages(chunk, window);
      task.parts =
          parts(chunk, window,
                kind == TaskKind::kLayerBackward ? options_.backward_cut : options_.forward_cut);
    }
    return result_.episodes.back().tasks.emplace_back(task);
  }

  // Only where all queries that see keys before the chunk see from the same one on can their keys
  // be cut.
  std::vector<KeyPart> parts(std::int64_t chunk, std::int64_t window, KeyCut cut) const {
    const std::int64_t begin = layout_.chunk_begin(chunk), size = layout_.chunk_size(chunk),
                       first = layout_.first_visible(begin, window),
                       same = layout_.tokens_before_documents(chunk);
    if (layout_.first_visible(begin + same - 1, window) != first)
      cut = {};
    else if (same < size)
      cut = cut_with_documents(cut, begin + size - first);
    std::vector<KeyPart> parts;
    for_key_parts(first, begin, size, layout_.page_tokens, cut,
                  [&](const KeyPart& part) { parts.push_back(part); });
    return parts;
  }

  void forward(std::int64_t chunk, bool keep, bool append) {
    add(TaskKind::kEmbed, chunk);
    for (std::int64_t layer = 0; layer < layers_; ++layer) {
      Task& task = add(TaskKind::kLayerForward, chunk, layer);
      task.keep = keep;
      task.append = append;
      task.only_kv = !keep && layer == layers_ - 1;
      if (task.only_kv) task.parts.clear();
      if (!append) continue;
      task.appended = layout_.chunk_pages(chunk);
      kv_pages_ += task.appended.size();
    }
    result_.peak_kv_pages = std::max(result_.peak_kv_pages, kv_pages_);
  }

  void backward(std::int64_t chunk) {
    add(TaskKind::kHead, chunk);
    for (std::int64_t layer = layers_ - 1; layer >= 0; --layer) {
      Task& task = add(TaskKind::kLayerBackward, chunk, layer);
      task.freed = layout_.chunk_pages(chunk);
      // Chunks go backwards and so do their visits: everything from the first touched page up to
      // this chunk's end has a gradient page already.
      std::int64_t& first = first_touched_[static_cast<std::size_t>(layer)];
      first = std::min(first, task.freed.end);
      if (const std::int64_t begin = task.visited.hull().begin; begin < first) {
        gradient_pages_ += first - begin;
        first = begin;
      }
      result_.peak_gradient_pages = std::max(result_.peak_gradient_pages, gradient_pages_);
      gradient_pages_ -= task.freed.size();
      kv_pages_ -= task.freed.size();
    }
    add(TaskKind::kEmbedBackward, chunk);
  }

  const SequenceLayout& layout_;
  const ScheduleOptions& options_;
  const std::int64_t layers_;
  StepSchedule result_;
  std::int64_t kv_pages_ = 0, gradient_pages_ = 0, position_ = 0;
  std::vector<std::int64_t> first_touched_;  // per layer: gradient pages exist from here to the end
                                             // of the last chunk not yet done
};

}  // namespace

StepSchedule make_step_schedule(const SequenceLayout& layout, const ScheduleOptions& options) {
  layout.validate();
  LS_CHECK(options.keep_chunks >= 1, "keep_chunks {}", options.keep_chunks);
  LS_CHECK(!options.windows.empty(), "a model has layers");
  return Builder(layout, options).build();
}

}  // namespace longstride
