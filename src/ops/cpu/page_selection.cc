// Selection of pages on the CPU. Scores: one task per query page, two passes over the means: the
// first finds every query's log-sum-exp, the second adds up the weights.
//   M rows: the queries of one head   N means of a block of pages   C head size
#include "ops/page_selection.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/thread_pool.h"
#include "ops/cpu/attention_tiles.h"
#include "ops/cpu/simd_math.h"
#include "ops/cpu/small_product.h"
#include "ops/top_values.h"

namespace longstride::ops::cpu {
namespace {

constexpr std::int64_t kBlockMeans = 256;
constexpr float kHidden = -std::numeric_limits<float>::infinity();

// A row's running maximum and sum of powers of two.
LS_SIMD_CLONES void add_exponentials(const float* scores, std::int64_t n, float& maximum,
                                     float& sum) {
  float m = maximum;
#pragma omp simd reduction(max : m)
  for (std::int64_t i = 0; i < n; ++i) m = scores[i] > m ? scores[i] : m;
  float s = 0;
#pragma omp simd reduction(+ : s)
  for (std::int64_t i = 0; i < n; ++i) s += exp2_approx(scores[i] - m);
  sum = sum * exp2_approx(maximum - m) + s;
  maximum = m;
}

LS_SIMD_CLONES void add_weights(const float* scores, std::int64_t n, float maximum, float inverse,
                                float* weights) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) weights[i] += exp2_approx(scores[i] - maximum) * inverse;
}

LS_SIMD_CLONES void add_fourth_powers(const float* scores, std::int64_t n, float maximum,
                                      float inverse, float* weights) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    const float w = exp2_approx(scores[i] - maximum) * inverse;
    weights[i] += w * w * (w * w);
  }
}

// Per thread: rows of q, scores and a transposed block of means, and a row's maximum and sum.
struct ScoreScratch {
  float *q_MC, *scores_MN, *panel_CN, *maximum_M, *sum_M;

  static std::int64_t block(std::int64_t means) {
    return std::max(kBlockMeans / means, std::int64_t{1}) * means;
  }
  static std::int64_t elements(const PageScoresShape& s) {
    return s.page_tokens * (s.head_size + block(s.means) + 2) + s.head_size * block(s.means);
  }
  ScoreScratch(float* at, const PageScoresShape& s)
      : q_MC(at),
        scores_MN(q_MC + s.page_tokens * s.head_size),
        panel_CN(scores_MN + s.page_tokens * block(s.means)),
        maximum_M(panel_CN + s.head_size * block(s.means)),
        sum_M(maximum_M + s.page_tokens) {}
};

class QueryPageScores {
 public:
  QueryPageScores(const PageScores& a, std::int64_t query_page, const ScoreScratch& scratch)
      : a_(a),
        scratch_(scratch),
        first_query_(query_page * a.page_tokens),
        queries_(std::min(a.page_tokens, a.seen.queries - first_query_)),
        block_pages_(ScoreScratch::block(a.means) / a.means),
        scores_N_(a.scores_QN.as<float>() + query_page * a.scores_QN.dim(1)) {}

  void run() {
    std::fill_n(scores_N_, a_.candidates(), 0.0f);
    const std::int64_t H = a_.q_THC.dim(1), K = a_.summaries_MKC.dim(1), group = H / K;
    if (a_.scoring != Scoring::kOomb) {
      for (std::int64_t h = 0; h < H; ++h) {
        gather_rows(a_.q_THC, first_query_, queries_, h, 1, scratch_.q_MC);
        add_head(h / group);
      }
      return;
    }
    for (std::int64_t k = 0; k < K; ++k) {
      sum_group(k * group, group);
      add_head(k);
    }
  }

 private:
  void sum_group(std::int64_t first_head, std::int64_t heads) {
    const std::int64_t H = a_.q_THC.dim(1), C = a_.q_THC.dim(2);
    for (std::int64_t t = 0; t < queries_; ++t)
      for (std::int64_t c = 0; c < C; ++c) {
        const float* q = a_.q_THC.as<float>() + ((first_query_ + t) * H + first_head) * C + c;
        float sum = 0;
        for (std::int64_t h = 0; h < heads; ++h) sum += q[h * C];
        scratch_.q_MC[t * C + c] = sum;
      }
  }

  // Scores of the block's pages in units of log 2, one column per page.
  void score_block(std::int64_t kv_head, std::int64_t first, std::int64_t pages) {
    const std::int64_t S = a_.means, K = a_.summaries_MKC.dim(1), C = a_.q_THC.dim(2),
                       columns = pages * S, stride = block_pages_ * S;
    const float* means =
        a_.summaries_MKC.as<float>() + (((a_.first_page() + first) * S) * K + kv_head) * C;
    transpose(means, K * C, columns, C, scratch_.panel_CN, columns);
    small_product({.m = queries_,
                   .n = columns,
                   .k = C,
                   .alpha = a_.scale * kLog2E,
                   .a = scratch_.q_MC,
                   .lda = C,
                   .b = scratch_.panel_CN,
                   .ldb = columns,
                   .c = scratch_.scores_MN,
                   .ldc = stride});
    // Means of other documents' keys in the first page.
    const std::int64_t hidden = first == 0 ? a_.hidden_means() : 0;
    for (std::int64_t t = 0; t < queries_; ++t) {
      float* row = scratch_.scores_MN + t * stride;
      std::fill_n(row, hidden, kHidden);
      for (std::int64_t p = 0; S > 1 && p < pages; ++p)
        row[p] = *std::max_element(row + p * S, row + (p + 1) * S);
    }
  }

  void add_head(std::int64_t kv_head) {
    const std::int64_t stride = block_pages_ * a_.means, N = a_.candidates();
    std::fill_n(scratch_.maximum_M, queries_, kHidden);
    std::fill_n(scratch_.sum_M, queries_, 0.0f);
    for (std::int64_t first = 0; first < N; first += block_pages_) {
      const std::int64_t pages = std::min(block_pages_, N - first);
      score_block(kv_head, first, pages);
      for (std::int64_t t = 0; t < queries_; ++t)
        add_exponentials(scratch_.scores_MN + t * stride, pages, scratch_.maximum_M[t],
                         scratch_.sum_M[t]);
    }
    for (std::int64_t first = 0; first < N; first += block_pages_) {
      const std::int64_t pages = std::min(block_pages_, N - first);
      // A single block is still there.
      if (N > block_pages_) score_block(kv_head, first, pages);
      for (std::int64_t t = 0; t < queries_; ++t)
        (weight_power(a_.scoring) == 4 ? add_fourth_powers : add_weights)(
            scratch_.scores_MN + t * stride, pages, scratch_.maximum_M[t], 1.0f / scratch_.sum_M[t],
            scores_N_ + first);
    }
  }

  const PageScores& a_;
  ScoreScratch scratch_;
  std::int64_t first_query_, queries_, block_pages_;
  float* scores_N_;
};

// Writes the middle pages [sinks, candidates - recent) that `best` chose between the forced ones.
std::int64_t write_list(const ChoosePages& a, std::span<const std::int32_t> middle,
                        std::span<std::int32_t> list) {
  std::int64_t n = 0;
  const std::int64_t sinks = std::min(a.sinks, a.candidates),
                     recent = std::max(sinks, a.candidates - a.recent);
  const auto add = [&](std::int64_t i) {
    list[static_cast<std::size_t>(n++)] = static_cast<std::int32_t>(a.first_page + i);
  };
  for (std::int64_t i = 0; i < sinks; ++i) add(i);
  for (const std::int32_t i : middle) add(i);
  for (std::int64_t i = recent; i < a.candidates; ++i) add(i);
  return n;
}

// The sum over keys [first, end) that are not in `without`, times 1 / (their number).
void mean_of_keys(const float* keys, std::int64_t stride, std::int64_t C, std::int64_t first,
                  std::int64_t end, std::span<const std::int64_t> without, float* mean) {
  std::fill_n(mean, C, 0.0f);
  for (std::int64_t t = first; t < end; ++t)
    if (std::find(without.begin(), without.end(), t) == without.end())
      for (std::int64_t c = 0; c < C; ++c) mean[c] += keys[t * stride + c];
  const float inverse = 1.0f / static_cast<float>(end - first - std::ssize(without));
  for (std::int64_t c = 0; c < C; ++c) mean[c] *= inverse;
}

void summarize_by_outliers(const SummarizePages& a) {
  const std::int64_t P = a.kv.page_tokens, K = a.kv.kv_heads, C = a.kv.head_size,
                     stride = a.kv.token_stride();
  parallel_for(a.pages * K, [&](std::int64_t i) {
    const std::int64_t page = i / K, head = i % K, first = a.first_row[page];
    const float* keys =
        reinterpret_cast<const float*>(a.kv.plane(a.first_page + page, 0)) + head * C;
    const auto vector = [&](std::int64_t s) {
      return a.summaries_MKC.as<float>() + ((page * a.means + s) * K + head) * C;
    };
    float* const mean = vector(a.means - 1);
    mean_of_keys(keys, stride, C, first, P, {}, mean);
    std::vector<std::pair<float, std::int64_t>> far;  // (minus the squared distance, key)
    for (std::int64_t t = first; t < P; ++t) {
      float sum = 0;
      for (std::int64_t c = 0; c < C; ++c) {
        const float difference = keys[t * stride + c] - mean[c];
        sum += difference * difference;
      }
      far.emplace_back(-sum, t);
    }
    const std::int64_t outliers = std::min(a.means - 1, P - first - 1);
    std::partial_sort(far.begin(), far.begin() + outliers, far.end());
    std::vector<std::int64_t> chosen;
    for (std::int64_t s = 0; s < outliers; ++s)
      chosen.push_back(far[static_cast<std::size_t>(s)].second);
    std::sort(chosen.begin(), chosen.end());
    for (std::int64_t s = 0; s < outliers; ++s)
      std::copy_n(keys + chosen[static_cast<std::size_t>(s)] * stride, C, vector(s));
    mean_of_keys(keys, stride, C, first, P, chosen, mean);
    for (std::int64_t s = outliers; s < a.means - 1; ++s) std::copy_n(mean, C, vector(s));
  });
}

}  // namespace

void summarize_pages(Stream&, const SummarizePages& a) {
  if (a.summary == Summary::kOutliers) return summarize_by_outliers(a);
  const std::int64_t P = a.kv.page_tokens, block = P / a.means, row = a.kv.row_elements();
  parallel_for(a.pages, [&](std::int64_t i) {
    const float* keys = reinterpret_cast<const float*>(a.kv.plane(a.first_page + i, 0));
    for (std::int64_t s = 0; s < a.means; ++s) {
      float* mean = a.summaries_MKC.as<float>() + (i * a.means + s) * row;
      std::fill_n(mean, row, 0.0f);
      const std::int64_t first = std::max<std::int64_t>(s * block, a.first_row[i]),
                         count = (s + 1) * block - first;
      if (count <= 0) continue;
      for (std::int64_t t = first; t < first + count; ++t)
        for (std::int64_t c = 0; c < row; ++c) mean[c] += keys[t * a.kv.token_stride() + c];
      const float inverse = 1.0f / static_cast<float>(count);
      for (std::int64_t c = 0; c < row; ++c) mean[c] *= inverse;
    }
  });
}

std::int64_t page_scores_scratch_elements(const PageScoresShape& shape) {
  return thread_count() * ScoreScratch::elements(shape);
}

void page_scores(Stream&, const PageScores& a) {
  const PageScoresShape shape{.tokens = a.q_THC.dim(0),
                              .query_heads = a.q_THC.dim(1),
                              .kv_heads = a.summaries_MKC.dim(1),
                              .head_size = a.q_THC.dim(2),
                              .page_tokens = a.page_tokens,
                              .means = a.means,
                              .scoring = a.scoring};
  parallel_for(a.query_pages(), [&](std::int64_t q) {
    float* at = a.scratch.as<float>() + thread_slot() * ScoreScratch::elements(shape);
    QueryPageScores(a, q, ScoreScratch(at, shape)).run();
  });
}

void choose_pages(Stream&, const ChoosePages& a) {
  const auto ints = [](const View& v, std::int64_t at, std::int64_t n) {
    return std::span(v.as<std::int32_t>() + at, static_cast<std::size_t>(n));
  };
  const std::span<std::int32_t> all = ints(a.union_U, 0, a.union_U.elements());
  std::fill(all.begin(), all.end(), -1);
  std::fill_n(a.lists_QB.as<std::int32_t>(), a.lists_QB.elements(), -1);
  if (a.candidates == 0 || a.query_pages == 0) return;
  const std::int64_t first = std::min(a.sinks, a.candidates),
                     end = std::max(first, a.candidates - a.recent),
                     forced = a.candidates - (end - first);
  float* sums = a.sums_N.as<float>();
  std::fill_n(sums, a.candidates, 0.0f);
  const std::int64_t stride = a.scores_QN.dim(1);
  for (std::int64_t q = 0; q < a.query_pages; ++q)
    for (std::int64_t i = 0; i < a.candidates; ++i)
      sums[i] += a.scores_QN.as<float>()[q * stride + i];
  // The union's middle pages, as columns; in place, then as pages.
  const std::int64_t in_union = std::min(end - first, a.union_pages - forced);
  std::int64_t n = 0;
  const std::span<std::int32_t> middle =
      all.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(in_union));
  top_values(
      end - first, in_union, [&](std::int64_t i) { return sums[first + i]; },
      [&](std::int64_t i) {
        middle[static_cast<std::size_t>(n++)] = static_cast<std::int32_t>(first + i);
      });
  parallel_for(a.query_pages, [&](std::int64_t q) {
    const float* scores = a.scores_QN.as<float>() + q * stride;
    const std::int64_t chosen = std::min(in_union, a.budget - forced);
    const std::span<std::int32_t> list = ints(a.lists_QB, q * a.lists_QB.dim(1), forced + chosen);
    const std::span<std::int32_t> best =
        list.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(chosen));
    std::int64_t k = 0;
    top_values(
        in_union, chosen,
        [&](std::int64_t i) { return scores[middle[static_cast<std::size_t>(i)]]; },
        [&](std::int64_t i) {
          best[static_cast<std::size_t>(k++)] = middle[static_cast<std::size_t>(i)];
        });
    write_list(a, best, list);
  });
  write_list(a, middle, all);
}

}  // namespace longstride::ops::cpu
