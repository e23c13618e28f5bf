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

PageMoves::Pools PageMoves::make_pools(const std::vector<PoolCapacity>& pools,
                                       const KvCapacity& capacity) const {
  Pools made;
  made.of_layer.resize(static_cast<std::size_t>(config_.layers));
  for (const PoolCapacity& p : pools) {
    for (const std::int64_t layer : p.layers)
      made.of_layer.at(static_cast<std::size_t>(layer)) = made.all.size();
    Pool& pool = made.all.emplace_back();
    pool.here = as_double(p.pages);
    pool.most = as_double(p.most);
    pool.host = p.offload.disk_records == 0
                    ? std::numeric_limits<double>::infinity()
                    : as_double(p.offload.host_records * capacity.pages_per_group);
    pool.bytes = as_double(p.page_bytes);
    pool.layers = as_double(std::ssize(p.layers));
    if (pool.holds_all()) continue;
    std::map<std::int64_t, double> layers;  // by window
    double sparse = 0;
    for (const std::int64_t layer : p.layers)
      (sparse_.is_sparse(layer) ? sparse
                                : layers[config_.windows[static_cast<std::size_t>(layer)]]) += 1;
    for (std::int64_t chunk = 0; chunk < layout_.chunks(); ++chunk) {
      const PageRun pages = layout_.chunk_pages(chunk);
      double hot =
          sparse * as_double(pages.size() + std::min(sparse_.selection.union_pages, pages.begin));
      for (const auto& [window, count] : layers)
        hot += count * as_double(layout_.visited_pages(chunk, window).size());
      pool.hot.push_back(hot);
    }
    pool.cold_per_chunk = (pool.layers - layers[0]) * as_double(layout_.chunk_pages(0).size());
  }
  return made;
}

PageMoves::PageMoves(const ModelConfig& config, const StepPlan& plan, const SequenceLayout& layout,
                     const StepSchedule& schedule)
    : config_(config), sparse_(plan.schedule.sparse), layout_(layout) {
  kv_ = make_pools(plan.pages.kv, plan.pages);
  gradients_ = make_pools(plan.pages.gradients, plan.pages);
  for (const Pools* pools : {&kv_, &gradients_})
    for (const Pool& pool : pools->all) moves_ = moves_ || !pool.holds_all();
  if (!moves_) return;
  find_largest_accesses(schedule, plan.pages.pages_per_group);
  for (Pool& pool : kv_.all) {
    const double all = pool.layers * as_double(layout.pages());
    if (!pool.holds_all()) pool.cold_evicted = std::min(all - pool.hot.back(), pool.missing(all));
  }
}

void PageMoves::find_largest_accesses(const StepSchedule& schedule, std::int64_t pages_per_group) {
  const std::int64_t P = layout_.page_tokens, per = pages_per_group;
  const void* seen = nullptr;  // lists of segments are shared by the tasks of a chunk
  double largest = 0;          // of the list seen last
  for (const Episode& episode : schedule.episodes)
    for (const Task& task : episode.tasks) {
      if (task.segments == nullptr) continue;
      if (task.segments.get() != seen) {
        seen = task.segments.get();
        largest = 0;
        for (const KeySegment& s : *task.segments) {
          // Whole groups, of which a segment may begin and end within one.
          const std::int64_t groups = ((s.end + P - 1) / P - s.begin / P + per - 2) / per + 1;
          largest = std::max(largest, as_double(groups * per));
        }
      }
      const double pages = task.sparse ? as_double(task.most_visited) : largest;
      Pool &kv = kv_.of(task), &gradients = gradients_.of(task);
      kv.access = std::min(std::max(kv.access, pages), kv.most);
      if (task.kind == TaskKind::kLayerBackward)
        gradients.access = std::min(std::max(gradients.access, pages), gradients.most);
    }
}

double PageMoves::overlap() const {
  double least = 1;
  for (const Pools* pools : {&kv_, &gradients_})
    for (const Pool& pool : pools->all) least = std::min(least, pool.overlap());
  return least;
}

bool PageMoves::is_dense(std::int64_t layer) const {
  return !sparse_.is_sparse(layer) && config_.windows[static_cast<std::size_t>(layer)] == 0;
}

double PageMoves::own(const Task& task) const {
  return as_double(layout_.chunk_pages(task.chunk).size());
}

TaskMoves PageMoves::next(const Task& task, EpisodeKind episode) {
  TaskMoves moves;
  if (!moves_ || task.layer < 0) return moves;
  Pool& kv = kv_.of(task);
  if (task.append) append(kv, own(task), moves);
  if (task.attends()) {
    const bool backward = task.kind == TaskKind::kLayerBackward,
               first_pass = !backward && episode != EpisodeKind::kRecompute;
    visit_kv(kv, task, first_pass, moves);
    moves.ahead = kv.ahead();
    if (backward) {
      const Pool& gradients = gradients_.of(task);
      fetch_own(kv, task, moves);
      visit_gradients(gradients, task, moves);
      moves.ahead += gradients.ahead();
    }
    // The lists of sparse layers are known long before, unless they were made by this task.
    if (task.sparse) moves.ahead = moves.in;
    moves.late = task.sparse && task.selects;
  }
  kv.existing -= as_double(task.freed.size());
  return moves;
}

void PageMoves::append(Pool& pool, double own, TaskMoves& moves) {
  const double before = pool.missing(pool.existing);
  pool.existing += own;
  const double after = pool.missing(pool.existing);
  moves.out += (after - before) * pool.bytes;
  moves.disk_out +=
      (std::max(0.0, after - pool.host) - std::max(0.0, before - pool.host)) * pool.bytes;
}

void PageMoves::visit_kv(const Pool& pool, const Task& task, bool first_pass,
                         TaskMoves& moves) const {
  const double missing_all = pool.missing(pool.existing);
  if (missing_all == 0) return;
  const double hot = pool.hot[static_cast<std::size_t>(task.chunk)],
               on_disk = std::max(0.0, missing_all - pool.host) / missing_all,
               visited = as_double(task.sparse ? task.most_visited : task.visited.size()),
               // A chunk's pages are still there when it first attends to them.
      wanted = visited - (first_pass ? own(task) : 0);
  double share = pool.missing(hot) / hot;
  if (task.sparse) share += (1 - share) * kNewSelected * missing_all / pool.existing;
  moves.in += wanted * share * pool.bytes;
  moves.disk_in += wanted * share * on_disk * pool.bytes;
}

// Pages that nothing accessed since they left come back for their own chunk. The oldest ones left
// first, into host memory while it had room.
void PageMoves::fetch_own(const Pool& pool, const Task& task, TaskMoves& moves) const {
  if (is_dense(task.layer) || pool.cold_per_chunk == 0) return;
  const double begin = pool.cold_per_chunk * static_cast<double>(task.chunk),
               end = std::min(begin + pool.cold_per_chunk, pool.cold_evicted);
  const double evicted = std::max(0.0, end - begin) / pool.cold_per_chunk,
               on_disk = std::max(0.0, end - std::max(begin, pool.host)) / pool.cold_per_chunk;
  moves.in += own(task) * evicted * pool.bytes;
  moves.disk_in += own(task) * on_disk * pool.bytes;
}

void PageMoves::visit_gradients(const Pool& pool, const Task& task, TaskMoves& moves) const {
  if (pool.holds_all()) return;
  const double hot = pool.hot[static_cast<std::size_t>(task.chunk)],
               all = pool.layers * as_double(layout_.chunk_pages(task.chunk).end),
               visited = as_double(task.sparse ? task.most_visited : task.visited.size());
  double share = pool.missing(hot) / hot, own_share = share;
  if (task.sparse) {
    own_share = std::max(share, pool.missing(all) / all);
    share += (1 - share) * kNewSelected * own_share;
  }
  const double missing = pool.missing(is_dense(task.layer) ? hot : all),
               on_disk = missing > 0 ? std::max(0.0, missing - pool.host) / missing : 0;
  // Gradients of the last chunk's tasks are new, and those of a window except the own ones.
  const double others = visited - own(task);
  const bool last = task.chunk + 1 == layout_.chunks();
  const bool window = !task.sparse && !is_dense(task.layer);
  const double in = last ? 0 : own(task) * own_share + (window ? 0 : others * share),
               out = others * share;
  moves.in += in * pool.bytes;
  moves.out += out * pool.bytes;
  moves.disk_in += in * on_disk * pool.bytes;
  moves.disk_out += out * on_disk * pool.bytes;
}

}  // namespace longstride
