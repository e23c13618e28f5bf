// Page selection of sparse attention in double precision, written for clarity: the trainer's lists
// are compared with these.
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <vector>

#include "tensor/selection.h"

namespace longstride::reference {

struct SelectionProblem {
  const SparseLayers& sparse;
  std::int64_t chunk_tokens = 0, page_tokens = 0;
};

// Row-major [tokens, heads * C].
struct Rows {
  const std::vector<double>& value;
  std::int64_t heads = 0, C = 0;
  double at(std::int64_t t, std::int64_t head, std::int64_t c) const {
    return value[static_cast<std::size_t>((t * heads + head) * C + c)];
  }
};

inline std::set<std::int64_t> best(const std::vector<double>& score,
                                   std::vector<std::int64_t> among, std::int64_t count) {
  std::stable_sort(among.begin(), among.end(), [&](std::int64_t a, std::int64_t b) {
    return score[static_cast<std::size_t>(a)] > score[static_cast<std::size_t>(b)];
  });
  among.resize(static_cast<std::size_t>(std::clamp<std::int64_t>(count, 0, std::ssize(among))));
  return {among.begin(), among.end()};
}

// Squared distances of keys of a head from their mean; by position, zero for others.
inline std::vector<double> distances(const Rows& k, std::int64_t head,
                                     const std::vector<std::int64_t>& keys) {
  std::vector<double> far(static_cast<std::size_t>(keys.back() + 1));
  for (std::int64_t c = 0; c < k.C; ++c) {
    double mean = 0;
    for (const std::int64_t t : keys) mean += k.at(t, head, c) / static_cast<double>(keys.size());
    for (const std::int64_t t : keys) {
      const double x = k.at(t, head, c) - mean;
      far[static_cast<std::size_t>(t)] += x * x;
    }
  }
  return far;
}

// The earlier pages of each query page of the sequence. `starts[t]`: where t's document began.
inline std::vector<std::set<std::int64_t>> select_pages(const SelectionProblem& p,
                                                        std::int64_t budget, const Rows& q,
                                                        const Rows& k, double scale,
                                                        const std::vector<std::int64_t>& starts) {
  const auto T = std::ssize(starts);
  const Selection& how = p.sparse.selection;
  const std::int64_t P = p.page_tokens, group = q.heads / k.heads, block = how.summary_tokens;
  const auto start = [&](std::int64_t t) { return starts[static_cast<std::size_t>(t)]; };
  // The product of a query (summed over `heads` of them) with the mean of some keys.
  const auto product_with = [&](std::int64_t t, std::int64_t head, std::int64_t heads,
                                const std::vector<std::int64_t>& keys) {
    double sum = 0;
    for (const std::int64_t s : keys)
      for (std::int64_t h = head; h < head + heads; ++h)
        for (std::int64_t c = 0; c < q.C; ++c) sum += q.at(t, h, c) * k.at(s, head / group, c);
    return sum / static_cast<double>(keys.size()) * scale;
  };
  // The product of a query with the best vector of a page's summary.
  const auto product = [&](std::int64_t t, std::int64_t head, std::int64_t heads, std::int64_t page,
                           std::int64_t first_key) {
    double top = -INFINITY;
    if (how.summary == Summary::kOutliers) {
      std::vector<std::int64_t> others;
      for (std::int64_t s = std::max(page * P, start((page + 1) * P - 1)); s < (page + 1) * P; ++s)
        others.push_back(s);
      const std::set<std::int64_t> far = best(distances(k, head / group, others), others,
                                              std::min(P / block - 1, std::ssize(others) - 1));
      for (const std::int64_t s : far) top = std::max(top, product_with(t, head, heads, {s}));
      std::erase_if(others, [&](std::int64_t s) { return far.contains(s); });
      return std::max(top, product_with(t, head, heads, others));
    }
    for (std::int64_t begin = page * P; begin < (page + 1) * P; begin += block) {
      if (begin + block <= first_key) continue;
      std::vector<std::int64_t> keys;
      for (std::int64_t s = std::max(begin, start((page + 1) * P - 1)); s < begin + block; ++s)
        keys.push_back(s);
      top = std::max(top, product_with(t, head, heads, keys));
    }
    return top;
  };

  std::vector<std::set<std::int64_t>> lists(static_cast<std::size_t>((T + P - 1) / P));
  for (std::int64_t chunk = 0; chunk < T; chunk += p.chunk_tokens) {
    const std::int64_t first_key = start(chunk), first = first_key / P, end = chunk / P;
    if (first_key == chunk) continue;
    std::int64_t seeing = chunk;
    while (seeing < std::min(T, chunk + p.chunk_tokens) && start(seeing) == first_key) ++seeing;
    std::vector<std::int64_t> forced, others;
    for (std::int64_t page = first; page < end; ++page)
      (page < first + how.sinks || page >= end - how.recent ? forced : others).push_back(page);
    std::vector<double> sums(static_cast<std::size_t>(end));
    std::vector<std::vector<double>> scores;
    for (std::int64_t query_page = chunk; query_page < seeing; query_page += P) {
      std::vector<double>& score = scores.emplace_back(static_cast<std::size_t>(end));
      const std::int64_t heads = how.scoring == Scoring::kOomb ? group : 1;
      for (std::int64_t t = query_page; t < std::min(query_page + P, seeing); ++t)
        for (std::int64_t h = 0; h < q.heads; h += heads) {
          std::vector<double> w;
          for (std::int64_t page = first; page < end; ++page)
            w.push_back(std::exp(product(t, h, heads, page, first_key)));
          const double sum = std::accumulate(w.begin(), w.end(), 0.0);
          for (std::int64_t page = first; page < end; ++page)
            score[static_cast<std::size_t>(page)] += std::pow(
                w[static_cast<std::size_t>(page - first)] / sum, weight_power(how.scoring));
        }
      for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += score[i];
    }
    const std::set<std::int64_t> shared = best(sums, others, how.union_pages - std::ssize(forced));
    for (std::size_t i = 0; i < scores.size(); ++i) {
      std::set<std::int64_t>& list = lists[static_cast<std::size_t>(end) + i];
      list = best(scores[i], {shared.begin(), shared.end()}, budget - std::ssize(forced));
      list.insert(forced.begin(), forced.end());
    }
  }
  return lists;
}

}  // namespace longstride::reference
