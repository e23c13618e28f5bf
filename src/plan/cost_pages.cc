#include "plan/cost_pages.h"

#include <algorithm>
#include <limits>
#include <map>

namespace longstride {
namespace {

// Accesses at once: one is computed on, two are under way (pages/page_budget.h).
constexpr double kAtOnce = 3;
// Of the pages that a chunk selects, the share that the chunks before it did not. With random
// weights and tokens gradients moved 5 to 20% of their accesses, once the pages that one chunk
// selects fitted on the device.
constexpr double kNewSelected = 0.1;

double as_double(std::int64_t n) { return static_cast<double>(n); }

}  // namespace

double PageRoom::missing(double pages) const {
  return holds_all() ? 0 : std::max(0.0, pages - std::max(0.0, here - kAtOnce * access));
}

double PageRoom::overlap() const {
  if (holds_all() || access == 0) return 1;
  return std::clamp((here - access) / ((kAtOnce - 1) * access), 0.0, 1.0);
}

double PageRoom::ahead() const {
  return std::clamp(here - access, 0.0, (kAtOnce - 1) * access) * bytes;
}

PageMoves::PageMoves(const ModelConfig& config, const NumericsRecord& numerics,
                     const StepPlan& plan, const SequenceLayout& layout,
                     const StepSchedule& schedule)
    : config_(config), sparse_(plan.schedule.sparse), layout_(layout) {
  const KvShape shape = kv_shape(config, numerics, plan.schedule.stage.heads);
  const KvCapacity& c = plan.pages;
  const auto room = [&](std::int64_t here, std::int64_t most, const OffloadCapacity& offload,
                        std::int64_t bytes) {
    return PageRoom{.here = as_double(here),
                    .most = as_double(most),
                    .host = offload.disk_records == 0
                                ? std::numeric_limits<double>::infinity()
                                : as_double(offload.host_records * c.pages_per_group),
                    .bytes = as_double(bytes)};
  };
  kv_ = room(c.kv_pages, schedule.peak_kv_pages, c.kv_offload, shape.page_bytes());
  gradients_ = room(c.gradient_pages, schedule.peak_gradient_pages, c.gradient_offload,
                    shape.gradient_page_bytes());
  moves_ = !kv_.holds_all() || !gradients_.holds_all();
  if (!moves_) return;
  find_largest_access(schedule, c.pages_per_group);

  std::map<std::int64_t, double> layers;  // by window
  double sparse = 0;
  for (std::int64_t layer = 0; layer < config.layers; ++layer)
    (sparse_.is_sparse(layer) ? sparse : layers[config.windows[static_cast<std::size_t>(layer)]]) +=
        1;
  for (std::int64_t chunk = 0; chunk < layout.chunks(); ++chunk) {
    const PageRun pages = layout.chunk_pages(chunk);
    double hot =
        sparse * as_double(pages.size() + std::min(sparse_.selection.union_pages, pages.begin));
    for (const auto& [window, count] : layers)
      hot += count * as_double(layout.visited_pages(chunk, window).size());
    hot_.push_back(hot);
  }
  const double all = as_double(config.layers * layout.pages());
  cold_per_chunk_ =
      (as_double(config.layers) - layers[0]) * as_double(layout.chunk_pages(0).size());
  cold_evicted_ = std::min(all - hot_.back(), kv_.missing(all));
}

void PageMoves::find_largest_access(const StepSchedule& schedule, std::int64_t pages_per_group) {
  const std::int64_t P = layout_.page_tokens, per = pages_per_group;
  const void* seen = nullptr;  // lists of segments are shared by the tasks of a chunk
  for (const Episode& episode : schedule.episodes)
    for (const Task& task : episode.tasks) {
      if (task.segments == nullptr || task.segments.get() == seen) continue;
      seen = task.segments.get();
      for (const KeySegment& s : *task.segments) {
        // Whole groups, of which a segment may begin and end within one.
        const std::int64_t groups = ((s.end + P - 1) / P - s.begin / P + per - 2) / per + 1;
        const double pages = as_double(task.sparse ? task.most_visited : groups * per);
        kv_.access = std::max(kv_.access, pages);
        if (task.kind == TaskKind::kLayerBackward)
          gradients_.access = std::max(gradients_.access, pages);
      }
    }
  kv_.access = std::min(kv_.access, kv_.most);
  gradients_.access = std::min(gradients_.access, gradients_.most);
}

double PageMoves::overlap() const { return std::min(kv_.overlap(), gradients_.overlap()); }

bool PageMoves::is_dense(std::int64_t layer) const {
  return !sparse_.is_sparse(layer) && config_.windows[static_cast<std::size_t>(layer)] == 0;
}

double PageMoves::own(const Task& task) const {
  return as_double(layout_.chunk_pages(task.chunk).size());
}

TaskMoves PageMoves::next(const Task& task, EpisodeKind episode) {
  TaskMoves moves;
  if (!moves_ || task.layer < 0) return moves;
  if (task.append) append(own(task), moves);
  if (task.attends()) {
    const bool backward = task.kind == TaskKind::kLayerBackward,
               first_pass = !backward && episode != EpisodeKind::kRecompute;
    visit_kv(task, first_pass, moves);
    moves.ahead = kv_.ahead();
    if (backward) {
      fetch_own(task, moves);
      visit_gradients(task, moves);
      moves.ahead += gradients_.ahead();
    }
    // The lists of sparse layers are known long before, unless they were made by this task.
    if (task.sparse) moves.ahead = moves.in;
    moves.late = task.sparse && task.selects;
  }
  existing_ -= as_double(task.freed.size());
  return moves;
}

void PageMoves::append(double own, TaskMoves& moves) {
  const double before = kv_.missing(existing_);
  existing_ += own;
  const double after = kv_.missing(existing_);
  moves.out += (after - before) * kv_.bytes;
  moves.disk_out +=
      (std::max(0.0, after - kv_.host) - std::max(0.0, before - kv_.host)) * kv_.bytes;
}

void PageMoves::visit_kv(const Task& task, bool first_pass, TaskMoves& moves) const {
  const double missing_all = kv_.missing(existing_);
  if (missing_all == 0) return;
  const double hot = hot_[static_cast<std::size_t>(task.chunk)],
               on_disk = std::max(0.0, missing_all - kv_.host) / missing_all,
               visited = as_double(task.sparse ? task.most_visited : task.visited.size()),
               // A chunk's pages are still there when it first attends to them.
      wanted = visited - (first_pass ? own(task) : 0);
  double share = kv_.missing(hot) / hot;
  if (task.sparse) share += (1 - share) * kNewSelected * missing_all / existing_;
  moves.in += wanted * share * kv_.bytes;
  moves.disk_in += wanted * share * on_disk * kv_.bytes;
}

// Pages that nothing accessed since they left come back for their own chunk. The oldest ones left
// first, into host memory while it had room.
void PageMoves::fetch_own(const Task& task, TaskMoves& moves) const {
  if (is_dense(task.layer) || cold_per_chunk_ == 0) return;
  const double begin = cold_per_chunk_ * static_cast<double>(task.chunk),
               end = std::min(begin + cold_per_chunk_, cold_evicted_);
  const double evicted = std::max(0.0, end - begin) / cold_per_chunk_,
               on_disk = std::max(0.0, end - std::max(begin, kv_.host)) / cold_per_chunk_;
  moves.in += own(task) * evicted * kv_.bytes;
  moves.disk_in += own(task) * on_disk * kv_.bytes;
}

void PageMoves::visit_gradients(const Task& task, TaskMoves& moves) const {
  const double hot = hot_[static_cast<std::size_t>(task.chunk)],
               all = as_double(config_.layers * layout_.chunk_pages(task.chunk).end),
               visited = as_double(task.sparse ? task.most_visited : task.visited.size());
  double share = gradients_.missing(hot) / hot, own_share = share;
  if (task.sparse) {
    own_share = std::max(share, gradients_.missing(all) / all);
    share += (1 - share) * kNewSelected * own_share;
  }
  const double missing = gradients_.missing(is_dense(task.layer) ? hot : all),
               on_disk = missing > 0 ? std::max(0.0, missing - gradients_.host) / missing : 0;
  // Gradients of the last chunk's tasks are new, and those of a window except the own ones.
  const double others = visited - own(task);
  const bool last = task.chunk + 1 == layout_.chunks();
  const bool window = !task.sparse && !is_dense(task.layer);
  const double in = last ? 0 : own(task) * own_share + (window ? 0 : others * share),
               out = others * share;
  moves.in += in * gradients_.bytes;
  moves.out += out * gradients_.bytes;
  moves.disk_in += in * on_disk * gradients_.bytes;
  moves.disk_out += out * on_disk * gradients_.bytes;
}

}  // namespace longstride
