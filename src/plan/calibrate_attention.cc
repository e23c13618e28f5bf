// Sums of partial results and of gradient pages, which the cost model counts as memory traffic
// too, are part of the times here: a few percent.
#include <algorithm>

#include "attention/visits.h"
#include "ops/page_selection.h"
#include "ops/paged_attention.h"
#include "plan/calibration_fit.h"
#include "plan/calibration_parts.h"
#include "tensor/selected_pages.h"

namespace longstride {
namespace {

constexpr std::int64_t kPage = CalibrationShapes::kPage;
constexpr double kBackward = 2.5;  // FLOPs of a backward pass per forward one

double count(std::int64_t n) { return static_cast<double>(n); }

struct Attention {
  std::int64_t queries = 0, earlier = 0, query_heads = 0, kv_heads = 0;
  std::int64_t head_size = CalibrationShapes::kHeadSize;
  std::int64_t window = 0, selected = 0;
  bool exact = false;

  SequenceLayout layout() const { return {earlier + queries, queries, kPage, {0}}; }
  double flops_per_key(bool backward) const {
    return 4 * count(query_heads * head_size * queries) * (backward ? kBackward : 1);
  }
  double own_flops(bool backward) const { return flops_per_key(backward) * count(queries + 1) / 2; }
};

// The lists of the last chunk. Selected pages are spread over all earlier ones, others for every
// page of queries.
VisitLists visit_lists(const Attention& a) {
  const SequenceLayout layout = a.layout();
  const std::int64_t chunk = a.earlier / a.queries;
  VisitLists lists;
  lists.reserve(layout);
  if (a.selected == 0) {
    lists.build(layout, chunk, a.window);
    return lists;
  }
  const std::int64_t pages = a.earlier / kPage, query_pages = a.queries / kPage,
                     step = pages / a.selected;
  SparseLayers sparse;
  sparse.budgets = {a.selected};
  sparse.selection.union_pages = pages;
  std::vector<std::int32_t> chosen;
  for (std::int64_t q = 0; q < query_pages; ++q)
    for (std::int64_t i = 0; i < a.selected; ++i)
      chosen.push_back(static_cast<std::int32_t>(i * step + q % step));
  SelectedLists selected;
  selected.reserve(layout, sparse);
  selected.store(chunk, 0, chosen, a.selected);
  lists.build(layout, chunk, selected, 0);
  return lists;
}

// Seconds without what a small number of tiles costs.
double time_attention(CalibrationBench& bench, const Attention& a, bool backward,
                      const AttentionRates& rates) {
  const std::int64_t T = a.queries, H = a.query_heads, C = a.head_size,
                     pages = (a.earlier + T) / kPage;
  const VisitLists lists = visit_lists(a);
  const VisitsView visits = lists.view();
  std::vector<std::int32_t> slots;
  for (std::int64_t page = 0; page < pages; ++page)
    slots.push_back(static_cast<std::int32_t>(page));
  const auto pages_of = [&](DType dtype) {
    const View pool = bench.noise(dtype, {pages, kPage, 2, a.kv_heads * C});
    return PagesView{static_cast<std::byte*>(pool.data()),
                     slots.data(),
                     pool.bytes() / pages,
                     kPage,
                     a.kv_heads,
                     C,
                     dtype};
  };
  ops::PagedAttentionShape shape{T, H, a.kv_heads, C, kPage, bench.compute()};
  if (a.selected > 0) {
    const SelectedCount selected = count_selected(visits, kPage);
    shape.selected_pages = selected.most;
    shape.union_pages = selected.distinct;
  }
  const std::vector<KeySegment> segments =
      cut_keys(chunk_keys(visits, T, kPage),
               ops::paged_attention_cut(bench.stream().kind(), {shape, backward, a.exact}));
  const PagesView kv = pages_of(bench.compute());
  const View q = bench.noise({T, H, C}), out = bench.noise({T, H, C}),
             lse = bench.noise(DType::kF32, {H, T}),
             scratch = bench.scratch(ops::paged_attention_scratch_elements(bench.stream(), shape));
  double seconds = 0;
  if (!backward) {
    seconds = bench.time([&] {
      ops::paged_attention_forward(bench.stream(), {.q_THC = q,
                                                    .kv = kv,
                                                    .visits = visits,
                                                    .out_THC = out,
                                                    .lse_HT = lse,
                                                    .scale = 0.1f,
                                                    .scratch = scratch,
                                                    .exact = a.exact,
                                                    .segments = segments});
    });
  } else {
    const PagesView kv_gradient = pages_of(DType::kF32);
    const View dout = bench.noise({T, H, C}), dq = bench.noise({T, H, C});
    seconds = bench.time([&] {
      ops::paged_attention_backward(bench.stream(), {.q_THC = q,
                                                     .out_THC = out,
                                                     .lse_HT = lse,
                                                     .dout_THC = dout,
                                                     .kv = kv,
                                                     .kv_gradient = kv_gradient,
                                                     .visits = visits,
                                                     .dq_THC = dq,
                                                     .scale = 0.1f,
                                                     .scratch = scratch,
                                                     .exact = a.exact,
                                                     .segments = segments});
    });
  }
  bench.clear();
  return seconds / (1 + rates.half_tiles / (std::max(1.0, count(T) / 128) * count(H)));
}

// Pairs of the chunk's queries and the keys of a window that is full for all of them.
double window_flops(const Attention& a, bool backward) {
  return a.flops_per_key(backward) * count(a.window);
}

}  // namespace

void calibrate_attention(CalibrationBench& bench, const CalibrationShapes& s, MachineRates& rates) {
  AttentionRates& r = rates.attention;
  const auto timed = [&](const Attention& a, bool backward) {
    return time_attention(bench, a, backward, r);
  };
  const Attention own{.queries = s.chunk, .query_heads = s.query_heads, .kv_heads = s.kv_heads};
  Attention half = own, few = own, many = own, exact = own, small = own, window = own,
            selected = own;
  half.queries = own.queries / 2;
  few.earlier = s.few_keys;
  many.earlier = exact.earlier = small.earlier = selected.earlier = s.many_keys;
  exact.exact = true;
  small.head_size = own.head_size / 2;
  small.query_heads *= 2;
  small.kv_heads *= 2;
  window.earlier = s.few_keys;
  window.window = s.window;
  selected.selected = s.selected_pages;
  Attention selected_exact = selected;
  selected_exact.exact = true;

  const double own_seconds[] = {timed(own, false), timed(own, true)},
               half_seconds[] = {timed(half, false), timed(half, true)};
  // Both passes share what a short chunk costs.
  r.half_own = fit_saturating(
                   {count(half.queries), half.own_flops(false), half_seconds[0] + half_seconds[1]},
                   {count(own.queries), own.own_flops(false), own_seconds[0] + own_seconds[1]})
                   .half;
  const auto own_rate = [&](bool backward) {
    return own.own_flops(backward) * (1 + r.half_own / count(own.queries)) / own_seconds[backward];
  };
  r.own_forward = own_rate(false);
  r.own_backward = own_rate(true);

  double many_seconds[2] = {};
  const auto earlier = [&](bool backward) {
    const auto work = [&](const Attention& a, double seconds) {
      return TimedWork{count(a.earlier), a.flops_per_key(backward) * count(a.earlier),
                       remaining_seconds(seconds, own_seconds[backward])};
    };
    const double few_seconds = timed(few, backward);
    many_seconds[backward] = timed(many, backward);
    return fit_saturating(work(few, few_seconds), work(many, many_seconds[backward]));
  };
  const Saturating forward = earlier(false), backward = earlier(true);
  r.earlier_forward = forward.peak;
  r.half_keys_forward = forward.half;
  r.earlier_backward = backward.peak;
  r.half_keys_backward = backward.half;
  r.exact_backward = std::max(1.0, timed(exact, true) / many_seconds[1]);
  r.small_heads_forward = many_seconds[0] / timed(small, false);
  r.small_heads_backward = many_seconds[1] / timed(small, true);

  r.window_forward = window_flops(window, false) / timed(window, false);
  r.window_backward = window_flops(window, true) / timed(window, true);

  const double keys = count(s.selected_pages * kPage), copies = count(s.chunk / kPage) * keys * 2 *
                                                                count(s.kv_heads * own.head_size) *
                                                                count(size_of(bench.compute()));
  const double selected_seconds[] = {timed(selected, false), timed(selected, true)};
  const auto selected_rate = [&](bool is_backward) {
    const double others = own_seconds[is_backward] + copies * (is_backward ? 4 : 2) / rates.memory;
    return own.flops_per_key(is_backward) * keys /
           remaining_seconds(selected_seconds[is_backward], others);
  };
  r.selected_forward = selected_rate(false);
  r.selected_backward = selected_rate(true);
  r.exact_selected = std::max(1.0, timed(selected_exact, true) / selected_seconds[1]);
}

void calibrate_selection(CalibrationBench& bench, const CalibrationShapes& s, MachineRates& rates) {
  const std::int64_t C = CalibrationShapes::kHeadSize, query_pages = s.chunk / kPage;
  const ops::PageScoresShape shape{.tokens = s.chunk,
                                   .query_heads = s.query_heads,
                                   .kv_heads = s.kv_heads,
                                   .head_size = C,
                                   .page_tokens = kPage};
  const View q = bench.noise({s.chunk, s.query_heads, C}),
             summaries = bench.noise({s.scored_pages, s.kv_heads, C}),
             scores = bench.noise(DType::kF32, {query_pages, s.scored_pages}),
             scratch = bench.scratch(ops::page_scores_scratch_elements(bench.stream(), shape));
  const double seconds = bench.time([&] {
    ops::page_scores(bench.stream(), {.q_THC = q,
                                      .summaries_MKC = summaries,
                                      .seen = {0, s.chunk},
                                      .chunk_begin = s.scored_pages * kPage,
                                      .page_tokens = kPage,
                                      .scale = 0.1f,
                                      .scores_QN = scores,
                                      .scratch = scratch});
  });
  bench.clear();
  rates.page_scores = 4 * count(C * s.query_heads * s.chunk * s.scored_pages) / seconds;
}

}  // namespace longstride
