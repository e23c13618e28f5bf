// Paged attention on the CPU, forward: one task per (query page, tile of heads), streaming over the
// visited pages with an online softmax. The backward pass is in paged_attention_backward.cc.
//
// Scores are kept in units of log 2, because powers of two are cheaper than exponentials. A tile
// stacks the queries of a few heads that share a KV head, so that one matrix product serves all of
// them:
//   M rows = heads of the tile x queries of the page   N keys of a block of pages   C head size
#include "ops/paged_attention.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "base/thread_pool.h"
#include "ops/coded_attention.h"
#include "ops/cpu/attention_tiles.h"
#include "ops/cpu/simd_math.h"
#include "ops/cpu/small_product.h"

namespace longstride::ops::cpu {
namespace {

constexpr float kHidden = -std::numeric_limits<float>::infinity();

// One row of the online softmax: turns scores into weights relative to the new maximum. Returns the
// factor by which earlier sums must be multiplied.
LS_SIMD_CLONES float softmax_row(float* scores, std::int64_t n, float& maximum, float& sum) {
  float m = maximum;
#pragma omp simd reduction(max : m)
  for (std::int64_t i = 0; i < n; ++i) m = scores[i] > m ? scores[i] : m;
  const float shift = m == kHidden ? 0.0f : m;  // a row that has seen no key yet
  float s = 0;
#pragma omp simd reduction(+ : s)
  for (std::int64_t i = 0; i < n; ++i) {
    const float p = exp2_approx(scores[i] - shift);
    scores[i] = p;
    s += p;
  }
  const float shrink = exp2_approx(maximum - shift);
  maximum = m;
  sum = sum * shrink + s;
  return shrink;
}

void hide_columns(float* scores, std::int64_t stride, const TileMask& mask, std::int64_t heads,
                  std::int64_t queries) {
  for (std::int64_t r = 0; r < heads * queries; ++r) {
    const auto [first, last] = mask.visible(r % queries);
    float* row = scores + r * stride;
    for (std::int64_t s = 0; s < first; ++s) row[s] = kHidden;
    for (std::int64_t s = last; s < mask.keys; ++s) row[s] = kHidden;
  }
}

// A row's running softmax. Before the last segment, `sum` holds the sum of weights, `lse` the
// maximum, and `out_C` the weighted values.
struct Row {
  float *out_C, *lse, *sum;
};

Row row_of(const PagedAttentionForward& a, const TilePlan& plan, std::int64_t query_page,
           std::int64_t tile, std::int64_t r) {
  const std::int64_t queries = plan.queries_of(query_page),
                     head = plan.first_head(tile) + r / queries,
                     token = query_page * plan.page_tokens + r % queries,
                     statistic = head * plan.tokens + token;
  return {a.out_THC.as<float>() + (token * plan.query_heads + head) * plan.head_size,
          a.lse_HT.as<float>() + statistic,
          a.scratch.as<float>() + thread_count() * plan.forward_scratch() + statistic};
}

void forward_tile(const PagedAttentionForward& a, const TilePlan& plan, std::int64_t query_page,
                  std::int64_t tile, float* scratch) {
  const KeySegment segment = joined(a.segments);
  const std::int64_t C = plan.head_size, P = plan.page_tokens, stride = plan.block_pages * P;
  const std::int64_t queries = plan.queries_of(query_page), heads = plan.heads_of(tile),
                     M = heads * queries;
  const std::int64_t first_head = plan.first_head(tile), kv_head = first_head / plan.group;
  float* q_MC = scratch;
  float* out_MC = q_MC + plan.tile_rows * C;
  float* scores_MN = out_MC + plan.tile_rows * C;
  float* maximum_M = scores_MN + plan.tile_rows * stride;
  float* sum_M = maximum_M + plan.tile_rows;
  float* panel = sum_M + plan.tile_rows;
  gather_rows(a.q_THC, query_page * P, queries, first_head, heads, q_MC);
  if (segment.first) {
    std::fill_n(out_MC, M * C, 0.0f);
    std::fill_n(maximum_M, M, kHidden);
    std::fill_n(sum_M, M, 0.0f);
  } else {
    for (std::int64_t r = 0; r < M; ++r) {
      const Row row = row_of(a, plan, query_page, tile, r);
      std::copy_n(row.out_C, C, out_MC + r * C);
      maximum_M[r] = *row.lse;
      sum_M[r] = *row.sum;
    }
  }

  const VisitsView& v = a.visits;
  const auto [first_visit, end_visit] = plan.visits_of(v, query_page, segment);
  for (std::int64_t i = first_visit; i < end_visit; i += plan.block_pages) {
    const std::int64_t pages = std::min(plan.block_pages, end_visit - i);
    std::int64_t columns = 0;
    for (std::int64_t j = 0; j < pages; ++j) {
      const TileMask mask = plan.mask(v, query_page, v.kv_pages[i + j]);
      const float* k = kv_plane(a.kv, v.kv_pages[i + j], 0, kv_head);
      transpose(k, plan.kv_stride, mask.keys, C, panel, mask.keys);
      small_product({.m = M,
                     .n = mask.keys,
                     .k = C,
                     .alpha = a.scale * kLog2E,
                     .a = q_MC,
                     .lda = C,
                     .b = panel,
                     .ldb = mask.keys,
                     .c = scores_MN + columns,
                     .ldc = stride});
      if (mask.partial) hide_columns(scores_MN + columns, stride, mask, heads, queries);
      columns += mask.keys;
    }
    for (std::int64_t r = 0; r < M; ++r) {
      const float shrink = softmax_row(scores_MN + r * stride, columns, maximum_M[r], sum_M[r]);
      if (shrink != 1.0f)
        for (std::int64_t c = 0; c < C; ++c) out_MC[r * C + c] *= shrink;
    }
    columns = 0;
    for (std::int64_t j = 0; j < pages; ++j) {
      const std::int64_t keys = plan.keys_of(v, v.kv_pages[i + j]);
      const float* values = kv_plane(a.kv, v.kv_pages[i + j], 1, kv_head);
      pack_rows(values, plan.kv_stride, keys, C, panel);
      small_product({.accumulate = true,
                     .m = M,
                     .n = C,
                     .k = keys,
                     .a = scores_MN + columns,
                     .lda = stride,
                     .b = panel,
                     .ldb = C,
                     .c = out_MC,
                     .ldc = C});
      columns += keys;
    }
  }
  for (std::int64_t r = 0; r < M; ++r) {
    const Row row = row_of(a, plan, query_page, tile, r);
    *row.lse = segment.last ? (maximum_M[r] + std::log2(sum_M[r])) / kLog2E : maximum_M[r];
    if (!segment.last) *row.sum = sum_M[r];
    const float inverse = segment.last ? 1.0f / sum_M[r] : 1.0f;
    for (std::int64_t c = 0; c < C; ++c) row.out_C[c] = out_MC[r * C + c] * inverse;
  }
}

}  // namespace

void paged_attention_reserve(Stream&, const PagedAttentionReserve&) {}
std::int64_t paged_attention_reserved_bytes(const PagedAttentionReserve&) { return 0; }

void paged_attention_forward(Stream& stream, const PagedAttentionForward& a) {
  widen_keys(stream, a);
  const TilePlan plan(a.q_THC, a.kv);
  float* scratch = a.scratch.as<float>();
  const std::int64_t tasks = plan.query_pages * plan.tiles;
  // Later query pages visit more: starting with them balances the end.
  parallel_for(tasks, [&](std::int64_t i) {
    const std::int64_t task = tasks - 1 - i;
    forward_tile(a, plan, task / plan.tiles, task % plan.tiles,
                 scratch + thread_slot() * plan.forward_scratch());
  });
}

std::int64_t paged_attention_scratch_elements(const PagedAttentionShape& s) {
  const TilePlan plan(s);
  return std::max(thread_count() * plan.forward_scratch() + plan.statistics(),
                  plan.backward_scratch(thread_count()));
}

KeyCut paged_attention_cut(const PagedAttentionPass& pass) {
  // Whole blocks of pages, several chunks long.
  constexpr std::int64_t kChunks = 8;
  const TilePlan plan(pass.shape);
  const std::int64_t block = plan.block_pages * plan.page_tokens;
  return {.tokens = (kChunks * plan.tokens + block - 1) / block * block, .from_first_page = true};
}

}  // namespace longstride::ops::cpu
