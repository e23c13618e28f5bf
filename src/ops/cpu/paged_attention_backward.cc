// Paged attention on the CPU, backward: five matrix products per (tile, page).
//
// A task owns one tile of heads and walks a segment of KV pages, and for each the query pages that
// visit it. So dq belongs to one task and accumulates in the order of KV pages. dk and dv
// accumulate in the task's own share; the shares of a KV head's tiles are then added into the
// gradient pages in the order of tiles. A BF16 page is rounded after the last of them.
#include <cmath>
#include <cstring>

#include "base/thread_pool.h"
#include "ops/coded_attention.h"
#include "ops/cpu/attention_tiles.h"
#include "ops/cpu/simd_math.h"
#include "ops/cpu/small_product.h"
#include "tensor/stochastic_round.h"

namespace longstride::ops::cpu {
namespace {

// weights = 2^(scores - lse), both in units of log 2; d_scores = weights * (d_weights - delta) *
// scale, over the visible columns.
LS_SIMD_CLONES void backward_row(float* scores, float* d_weights, std::int64_t first,
                                 std::int64_t last, std::int64_t keys, float lse, float delta,
                                 float scale) {
  for (std::int64_t s = 0; s < first; ++s) scores[s] = d_weights[s] = 0.0f;
  for (std::int64_t s = last; s < keys; ++s) scores[s] = d_weights[s] = 0.0f;
#pragma omp simd
  for (std::int64_t s = first; s < last; ++s) {
    const float p = exp2_approx(scores[s] - lse);
    scores[s] = p;
    d_weights[s] = p * (d_weights[s] - delta) * scale;
  }
}

LS_SIMD_CLONES float dot(const float* a, const float* b, std::int64_t n) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

LS_SIMD_CLONES void add_row(const float* from, std::int64_t n, float* to) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) to[i] += from[i];
}

LS_SIMD_CLONES void add_row(const bf16* from, std::int64_t n, float* to) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) to[i] += to_float(from[i]);
}

// to = from, rounded: elements [first, first + n) of a token's row.
LS_SIMD_CLONES void round_row(const float* from, std::int64_t n, RowRounding row,
                              std::uint32_t first, bf16* to) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i)
    to[i].bits = stochastic_bf16(std::bit_cast<std::uint32_t>(from[i]),
                                 row.bits_of(first + static_cast<std::uint32_t>(i)));
}

class Backward {
 public:
  explicit Backward(const PagedAttentionBackward& a)
      : a_(a), segment_(joined(a.segments)), plan_(a.q_THC, a.kv) {
    float* at = a.scratch.as<float>();
    const auto carve = [&](std::int64_t n) { return std::exchange(at, at + n); };
    tiles_ = carve(thread_count() * plan_.tile_scratch());
    q_ = carve(plan_.rows_scratch());
    dout_ = carve(plan_.rows_scratch());
    dq_ = carve(plan_.rows_scratch());
    delta_ = carve(plan_.tokens * plan_.query_heads);
    shares_ = carve(plan_.tiles * plan_.share_scratch());
  }

  void run() {
    const std::int64_t tasks = plan_.query_pages * plan_.tiles;
    parallel_for(tasks, [&](std::int64_t i) { load(i / plan_.tiles, i % plan_.tiles); });
    const auto [begin, end] = visited();
    for (std::int64_t first = begin; first < end; first += plan_.segment_pages()) {
      const std::int64_t count = std::min(plan_.segment_pages(), end - first);
      parallel_for(plan_.tiles, [&](std::int64_t tile) { walk(tile, first, count); });
      parallel_for(count * plan_.kv_heads, [&](std::int64_t i) {
        add_shares(first + i / plan_.kv_heads, i / plan_.kv_heads, i % plan_.kv_heads);
      });
    }
    parallel_for(tasks, [&](std::int64_t i) { store(i / plan_.tiles, i % plan_.tiles); });
  }

 private:
  // The visited pages of the segment, as indices into the list.
  std::pair<std::int64_t, std::int64_t> visited() const {
    const VisitsView& v = a_.visits;
    const auto index = [&](std::int64_t key) {
      const std::int32_t* const at =
          std::lower_bound(v.visited, v.visited + v.visited_pages,
                           (key + plan_.page_tokens - 1) / plan_.page_tokens);
      return static_cast<std::int64_t>(at - v.visited);
    };
    return {segment_.first ? 0 : index(segment_.begin),
            segment_.last ? v.visited_pages : index(segment_.end)};
  }

  // Rows of a tile in the page-major copies [query page][head][query][C].
  std::int64_t row_of(std::int64_t query_page, std::int64_t tile) const {
    return query_page * plan_.page_tokens * plan_.query_heads +
           plan_.first_head(tile) * plan_.queries_of(query_page);
  }

  void load(std::int64_t query_page, std::int64_t tile) {
    const std::int64_t C = plan_.head_size, queries = plan_.queries_of(query_page),
                       first = query_page * plan_.page_tokens;
    const std::int64_t row = row_of(query_page, tile), head = plan_.first_head(tile),
                       heads = plan_.heads_of(tile);
    gather_rows(a_.q_THC, first, queries, head, heads, q_ + row * C);
    gather_rows(a_.dout_THC, first, queries, head, heads, dout_ + row * C);
    if (segment_.first)
      std::fill_n(dq_ + row * C, heads * queries * C, 0.0f);
    else
      gather_rows(a_.dq_THC, first, queries, head, heads, dq_ + row * C);
    for (std::int64_t r = 0; r < heads * queries; ++r) {
      const std::int64_t element =
          ((first + r % queries) * plan_.query_heads + head + r / queries) * C;
      delta_[row + r] = dot(a_.out_THC.as<float>() + element, dout_ + (row + r) * C, C);
    }
  }

  void walk(std::int64_t tile, std::int64_t first, std::int64_t count) {
    const VisitsView& v = a_.visits;
    const std::int64_t C = plan_.head_size, P = plan_.page_tokens,
                       kv_head = plan_.first_head(tile) / plan_.group;
    float* weights_MN = tiles_ + thread_slot() * plan_.tile_scratch();
    float* d_weights_MN = weights_MN + plan_.tile_rows * P;
    float* k_CN = d_weights_MN + plan_.tile_rows * P;
    float* values_CN = k_CN + plan_.panel_scratch();
    float* k_NC = values_CN + plan_.panel_scratch();
    for (std::int64_t j = 0; j < count; ++j) {
      const std::int64_t page = v.visited[first + j];
      float* dk = shares_ + tile * plan_.share_scratch() + j * 2 * P * C;
      float* dv = dk + P * C;
      std::fill_n(dk, 2 * P * C, 0.0f);
      const float* k = kv_plane(a_.kv, page, 0, kv_head);
      const float* values = kv_plane(a_.kv, page, 1, kv_head);
      const std::int64_t N = plan_.keys_of(v, page);
      transpose(k, plan_.kv_stride, N, C, k_CN, N);
      transpose(values, plan_.kv_stride, N, C, values_CN, N);
      pack_rows(k, plan_.kv_stride, N, C, k_NC);
      for (std::int64_t i = v.back_offsets[first + j]; i < v.back_offsets[first + j + 1]; ++i) {
        const std::int64_t query_page = v.back_queries[i], queries = plan_.queries_of(query_page);
        const std::int64_t row = row_of(query_page, tile), M = plan_.heads_of(tile) * queries;
        const TileMask mask = plan_.mask(v, query_page, page);
        const auto scores = [&](float alpha, const float* a, const float* b, float* c) {
          small_product({.m = M,
                         .n = N,
                         .k = C,
                         .alpha = alpha,
                         .a = a,
                         .lda = C,
                         .b = b,
                         .ldb = N,
                         .c = c,
                         .ldc = N});
        };
        scores(a_.scale * kLog2E, q_ + row * C, k_CN, weights_MN);
        scores(1.0f, dout_ + row * C, values_CN, d_weights_MN);
        for (std::int64_t r = 0; r < M; ++r) {
          const std::int64_t token = query_page * P + r % queries,
                             head = plan_.first_head(tile) + r / queries;
          const auto [from, to] =
              mask.partial ? mask.visible(r % queries) : std::pair{std::int64_t{0}, N};
          backward_row(weights_MN + r * N, d_weights_MN + r * N, from, to, N,
                       a_.lse_HT.as<float>()[head * plan_.tokens + token] * kLog2E, delta_[row + r],
                       a_.scale);
        }
        const auto add_to_keys = [&](const float* a, const float* b, float* c) {
          small_product({.trans_a = true,
                         .accumulate = true,
                         .m = N,
                         .n = C,
                         .k = M,
                         .a = a,
                         .lda = N,
                         .b = b,
                         .ldb = C,
                         .c = c,
                         .ldc = C});
        };
        add_to_keys(weights_MN, dout_ + row * C, dv);
        add_to_keys(d_weights_MN, q_ + row * C, dk);
        small_product({.accumulate = true,
                       .m = M,
                       .n = C,
                       .k = N,
                       .a = d_weights_MN,
                       .lda = N,
                       .b = k_NC,
                       .ldb = C,
                       .c = dq_ + row * C,
                       .ldc = C});
      }
    }
  }

  void add_shares(std::int64_t visited, std::int64_t j, std::int64_t kv_head) {
    const std::int64_t page = a_.visits.visited[visited], C = plan_.head_size,
                       P = plan_.page_tokens;
    const std::int64_t keys = plan_.keys_of(a_.visits, page);
    for (int which = 0; which < 2; ++which) {
      const auto share = [&](std::int64_t i) {  // of the head's tile i
        return shares_ + (kv_head * plan_.tiles_per_group + i) * plan_.share_scratch() +
               (j * 2 + which) * P * C;
      };
      if (a_.kv_gradient.dtype == DType::kBF16) {
        // Accumulates in the first tile's share, in the order of additions to an F32 page.
        const std::int64_t first = (which * plan_.kv_heads + kv_head) * C;
        bf16* to = reinterpret_cast<bf16*>(a_.kv_gradient.plane(page, 0)) + first;
        for (std::int64_t s = 0; s < keys; ++s, to += plan_.kv_stride) {
          float* sum = share(0) + s * C;
          add_row(to, C, sum);
          for (std::int64_t i = 1; i < plan_.tiles_per_group; ++i)
            add_row(share(i) + s * C, C, sum);
          round_row(sum, C, {a_.rounding, page * P + s}, static_cast<std::uint32_t>(first), to);
        }
        continue;
      }
      float* to = kv_plane(a_.kv_gradient, page, which, kv_head);
      for (std::int64_t i = 0; i < plan_.tiles_per_group; ++i)
        for (std::int64_t s = 0; s < keys; ++s)
          add_row(share(i) + s * C, C, to + s * plan_.kv_stride);
    }
  }

  void store(std::int64_t query_page, std::int64_t tile) {
    const std::int64_t C = plan_.head_size, queries = plan_.queries_of(query_page),
                       head = plan_.first_head(tile);
    const float* from = dq_ + row_of(query_page, tile) * C;
    for (std::int64_t h = 0; h < plan_.heads_of(tile); ++h)
      for (std::int64_t t = 0; t < queries; ++t, from += C)
        std::memcpy(a_.dq_THC.as<float>() +
                        ((query_page * plan_.page_tokens + t) * plan_.query_heads + head + h) * C,
                    from, static_cast<std::size_t>(C) * sizeof(float));
  }

  const PagedAttentionBackward& a_;
  KeySegment segment_;
  const TilePlan plan_;
  float *tiles_, *q_, *dout_, *dq_, *delta_, *shares_;
};

}  // namespace

void paged_attention_backward(Stream& stream, const PagedAttentionBackward& a) {
  widen_keys(stream, a);
  if (std::byte* const sums = sums_of_coded(a))
    std::memset(sums, 0, static_cast<std::size_t>(bytes_of_sums(a)));
  Backward(a).run();
  keep_sums(stream, a);
}

}  // namespace longstride::ops::cpu
