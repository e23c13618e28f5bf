#include "model/page_selector.h"

#include <algorithm>
#include <utility>

#include "ops/elementwise.h"
#include "ops/page_selection.h"

namespace longstride {

void PageSelector::reserve(const SequenceLayout& layout) {
  if (!sparse_.any()) return;
  longest_ = layout;
  const std::int64_t query_pages = layout.chunk_pages(0).size();
  lists_.reserve(layout, sparse_);
  visits_.reserve(layout);
  first_rows_.reserve(static_cast<std::size_t>(query_pages));
  for (Pending& pending : pending_)
    pending.lists.reserve(static_cast<std::size_t>(query_pages * sparse_.most_pages()));
}

std::int64_t PageSelector::most_score_bytes(const SequenceLayout& longest) {
  return longest.chunk_pages(0).size() * longest.pages() * size_of(DType::kF32);
}

void PageSelector::begin_sequence(const SequenceLayout& layout) {
  layout_ = layout;
  for (Pending& pending : pending_) pending.active = false;
}

void PageSelector::summarize(const LayerPass& pass) {
  const Task& task = pass.task;
  if (task.chunk + 1 == layout_.chunks()) return;  // no later chunk selects them
  const std::int64_t P = layout_.page_tokens, means = summaries_.means();
  const PageRun own = layout_.chunk_pages(task.chunk);
  first_rows_.clear();
  for (std::int64_t page = own.begin; page < own.end; ++page)
    first_rows_.push_back(static_cast<std::int32_t>(
        std::max<std::int64_t>(0, layout_.document_start((page + 1) * P - 1) - page * P)));
  ops::summarize_pages(
      pass.ctx.stream(),
      {.kv = pass.pages.kv(task.layer),
       .first_page = own.begin,
       .pages = own.size(),
       .means = means,
       .summary = sparse_.selection.summary,
       .first_row = first_rows_.data(),
       .summaries_MKC =
           summaries_.of_layer(task.layer).rows(own.begin * means, own.size() * means)});
}

void PageSelector::select(const LayerPass& pass, ConstView q_THC) {
  const Task& task = pass.task;
  const ChunkContext& ctx = pass.ctx;
  const AttendedChunk a = ctx.attended();
  const HeadShare& share = ctx.shared.share;
  Pending& pending = pending_[next_pending_];
  next_pending_ = (next_pending_ + 1) % kMostPending;
  settle(pending, pass.pages);
  const Selection& s = sparse_.selection;
  const std::int64_t P = longest_.page_tokens, budget = sparse_.budget(task.layer),
                     most = std::max<std::int64_t>(1, longest_.pages()),
                     query_pages = (a.tokens + P - 1) / P;
  const DenseKeys seen{layout_.document_start(a.begin),
                       layout_.tokens_before_documents(task.chunk)};
  const bool any = budget > 0 && seen.first < a.begin;
  pending.task = task;
  pending.active = true;
  pending.fence = {};
  pending.lists.assign(any ? static_cast<std::size_t>(query_pages * budget) : 0, -1);
  {
    // The same tensors for every chunk, whether or not it has earlier pages, as the plan has them.
    const ops::PageScoresShape shape{.tokens = a.tokens,
                                     .query_heads = a.query_heads,
                                     .kv_heads = a.kv_heads,
                                     .head_size = ctx.config.head_size,
                                     .page_tokens = P,
                                     .means = summaries_.means(),
                                     .scoring = s.scoring};
    const Lease scratch = ctx.take_f32("page scores' scratch",
                                       {ops::page_scores_scratch_elements(ctx.stream(), shape)});
    const Lease scores_QN = ctx.take_f32("page scores", {query_pages, most});
    Lease of_all;
    if (share.several())
      of_all = ctx.take_f32("page scores of all heads", {share.ranks, query_pages, most});
    const Lease sums_N = ctx.take_f32("sums of page scores", {most});
    const Lease union_U = ctx.workspace.take(
        "union of pages", DType::kI32, {std::max<std::int64_t>(1, std::min(s.union_pages, most))});
    const Lease lists_QB = ctx.workspace.take("selected pages", DType::kI32,
                                              {query_pages, std::max<std::int64_t>(1, budget)});
    if (any) {
      ops::PageScores scores{.q_THC = q_THC,
                             .summaries_MKC = summaries_.of_layer(task.layer),
                             .seen = seen,
                             .chunk_begin = a.begin,
                             .page_tokens = P,
                             .means = summaries_.means(),
                             .summary = s.summary,
                             .scoring = s.scoring,
                             .scale = attention_scale(ctx.config),
                             .scores_QN = scores_QN,
                             .scratch = scratch};
      // Without gaps, so that only scores are sent.
      if (share.several())
        scores.scores_QN = {
            scores_QN.view().data(), DType::kF32, {scores.query_pages(), scores.candidates()}};
      ops::page_scores(ctx.stream(), scores);
      if (share.several()) add_heads(ctx, scores.scores_QN, of_all);
      ops::choose_pages(ctx.stream(), {.scores_QN = scores.scores_QN,
                                       .query_pages = scores.query_pages(),
                                       .first_page = scores.first_page(),
                                       .candidates = scores.candidates(),
                                       .budget = budget,
                                       .sinks = s.sinks,
                                       .recent = s.recent,
                                       .union_pages = s.union_pages,
                                       .sums_N = sums_N,
                                       .union_U = union_U,
                                       .lists_QB = lists_QB});
      const auto bytes = static_cast<std::int64_t>(pending.lists.size() * sizeof(std::int32_t));
      if (bytes <= Device::kMostResultBytes)
        pending.fence =
            ctx.device.fetch_result(pending.lists.data(), lists_QB.view().data(), bytes);
      else
        ctx.device.copy_to_host(pending.lists.data(), lists_QB.view().data(), bytes);
    }
  }
}

// Every scoring is a sum over KV heads, each with the queries of its group.
void PageSelector::add_heads(const ChunkContext& ctx, View scores_QN, View of_all) {
  const std::int64_t ranks = ctx.shared.share.ranks;
  const View all{of_all.data(), DType::kF32, {ranks, scores_QN.elements()}};
  const auto one = [&](std::int64_t r) { return all.rows(r, 1).reshaped(scores_QN.shape()); };
  if (ctx.shared.exchange != nullptr) ctx.shared.exchange->gather(scores_QN, all);
  ops::add(ctx.stream(), {one(0), one(1), scores_QN});
  for (std::int64_t r = 2; r < ranks; ++r) ops::add(ctx.stream(), {scores_QN, one(r), scores_QN});
}

void PageSelector::settle(const Task& task, PageStore& pages) {
  for (Pending& pending : pending_)
    if (pending.task.chunk == task.chunk && pending.task.layer == task.layer)
      settle(pending, pages);
}

void PageSelector::settle_all(PageStore& pages) {
  for (Pending& pending : pending_) settle(pending, pages);
}

void PageSelector::settle(Pending& pending, PageStore& pages) {
  if (!std::exchange(pending.active, false)) return;
  device_.wait_for(pending.fence);
  const Task& task = pending.task;
  lists_.store(task.chunk, task.layer, pending.lists,
               pending.lists.empty() ? 0 : sparse_.budget(task.layer));
  runs_.clear();
  for (const std::int32_t page : lists_.pages(task.chunk, task.layer))
    runs_.push_back({page, page + 1});
  runs_.push_back(layout_.chunk_pages(task.chunk));
  pages.select(task, PageSet(runs_));
}

VisitsView PageSelector::visits(const Task& task) {
  visits_.build(layout_, task.chunk, lists_, task.layer);
  return visits_.view();
}

}  // namespace longstride
