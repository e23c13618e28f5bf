#include "ops/page_selection.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>

#include "ops/cases/registry.h"

namespace longstride::ops {
namespace {

std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

// ---- summarize_pages ----

struct Summaries {
  std::int64_t pages, P, K, C, means;
  DType dtype = DType::kF32;
  Summary summary = Summary::kMeans;
  // The pages' first rows that count: a document begins within every third page.
  std::vector<std::int32_t> first_rows() const {
    std::vector<std::int32_t> rows;
    for (std::int64_t i = 0; i < pages; ++i)
      rows.push_back(i % 3 == 1 ? static_cast<std::int32_t>(P * 5 / 8) : 0);
    return rows;
  }
  std::string label() const {
    return fmt::format("pages={} P={} K={} C={} means={}{}{}", pages, P, K, C, means,
                       summary == Summary::kMeans ? "" : " outliers",
                       dtype == DType::kF32 ? "" : " in BF16");
  }
};

void outliers_reference(const Summaries& a, const std::vector<std::int32_t>& slots, Values& v) {
  const std::vector<std::int32_t> rows = a.first_rows();
  for (std::int64_t i = 0; i < a.pages * a.K; ++i) {
    const std::int64_t page = i / a.K, head = i % a.K, first = rows[index(page)];
    const auto key = [&](std::int64_t t, std::int64_t c) {
      return v["pool"][index(((slots[index(page + 1)] * a.P + t) * 2 * a.K + head) * a.C + c)];
    };
    const auto mean = [&](std::int64_t c, const std::vector<std::int64_t>& of) {
      double sum = 0;
      for (const std::int64_t t : of) sum += key(t, c);
      return sum / static_cast<double>(of.size());
    };
    std::vector<std::int64_t> all, others;
    for (std::int64_t t = first; t < a.P; ++t) all.push_back(t);
    std::vector<double> far(index(a.P));
    for (std::int64_t c = 0; c < a.C; ++c)
      for (const std::int64_t t : all)
        far[index(t)] += (key(t, c) - mean(c, all)) * (key(t, c) - mean(c, all));
    std::vector<std::int64_t> outliers = all;
    std::stable_sort(outliers.begin(), outliers.end(),
                     [&](std::int64_t x, std::int64_t y) { return far[index(x)] > far[index(y)]; });
    outliers.resize(index(std::min(a.means - 1, std::ssize(all) - 1)));
    std::sort(outliers.begin(), outliers.end());
    std::set_difference(all.begin(), all.end(), outliers.begin(), outliers.end(),
                        std::back_inserter(others));
    for (std::int64_t s = 0; s < a.means; ++s)
      for (std::int64_t c = 0; c < a.C; ++c)
        v["summaries"][index(((page * a.means + s) * a.K + head) * a.C + c)] =
            s < std::ssize(outliers) ? key(outliers[index(s)], c) : mean(c, others);
  }
}

Problem summaries_problem(const Summaries& a) {
  Problem p;
  p.input("pool", a.dtype, {a.pages + 2, a.P, 2, a.K * a.C});
  p.output("summaries", a.dtype, {a.pages * a.means, a.K, a.C},
           a.dtype == DType::kF32 ? Problem::kTolerance : Problem::kTolerance16);
  // Pages 1 to `pages`, in slots that descend.
  std::vector<std::int32_t> slots;
  for (std::int64_t i = 0; i <= a.pages; ++i)
    slots.push_back(static_cast<std::int32_t>(a.pages + 1 - i));
  p.run = [a, slots, rows = a.first_rows()](Stream& stream, const Bound& v) {
    summarize_pages(stream, {.kv = {static_cast<std::byte*>(v("pool").data()), slots.data(),
                                    2 * a.P * a.K * a.C * size_of(a.dtype), a.P, a.K, a.C, a.dtype},
                             .first_page = 1,
                             .pages = a.pages,
                             .means = a.means,
                             .summary = a.summary,
                             .first_row = rows.data(),
                             .summaries_MKC = v("summaries")});
  };
  p.reference = [a, slots, rows = a.first_rows()](Values& v) {
    if (a.summary == Summary::kOutliers) return outliers_reference(a, slots, v);
    const std::int64_t row = a.K * a.C, block = a.P / a.means;
    for (std::int64_t i = 0; i < a.pages; ++i)
      for (std::int64_t s = 0; s < a.means; ++s)
        for (std::int64_t c = 0; c < row; ++c) {
          double sum = 0;
          std::int64_t count = 0;
          for (std::int64_t t = s * block; t < (s + 1) * block; ++t) {
            if (t < rows[index(i)]) continue;
            sum += v["pool"][index(((slots[index(i + 1)] * a.P + t) * 2) * row + c)];
            ++count;
          }
          v["summaries"][index((i * a.means + s) * row + c)] =
              count == 0 ? 0 : sum / static_cast<double>(count);
        }
  };
  p.bytes = static_cast<double>(a.pages * a.P * a.K * a.C * size_of(a.dtype));
  return p;
}

// ---- page_scores ----

// A chunk of T queries at `begin`, of which the first `queries` see keys from `first` on.
struct Scores {
  std::int64_t T, H, K, C, P, means, begin;
  std::int64_t first = 0, queries = 0;
  Scoring scoring = Scoring::kMass;
  DType dtype = DType::kF32;
  double magnitude = 1;

  DenseKeys seen() const { return {first, queries > 0 ? queries : T}; }
  std::int64_t candidates() const { return begin / P - first / P; }
  std::int64_t query_pages() const { return (seen().queries + P - 1) / P; }
  PageScoresShape shape() const { return {T, H, K, C, P, means, scoring}; }
  std::string label() const {
    return fmt::format("T={} H={} K={} C={} P={} means={} begin={} first={} queries={}{}{}{}", T, H,
                       K, C, P, means, begin, first, seen().queries,
                       scoring == Scoring::kMass    ? ""
                       : scoring == Scoring::kFocus ? " focus"
                                                    : " oomb",
                       dtype == DType::kF32 ? "" : " in BF16", magnitude == 1 ? "" : " sharp");
  }
};

// The weights of one query: a softmax over the candidates.
std::vector<double> weights(const Scores& a, const Values& v, std::int64_t t, std::int64_t head,
                            std::int64_t heads) {
  const std::int64_t kv_head = head / (a.H / a.K), S = a.means;
  std::vector<double> w;
  for (std::int64_t page = a.first / a.P; page < a.begin / a.P; ++page) {
    double best = -INFINITY;
    for (std::int64_t s = 0; s < S; ++s) {
      if (page * a.P + (s + 1) * (a.P / S) <= a.first) continue;
      double score = 0;
      for (std::int64_t h = head; h < head + heads; ++h)
        for (std::int64_t c = 0; c < a.C; ++c)
          score += v.at("q")[index((t * a.H + h) * a.C + c)] *
                   v.at("summaries")[index(((page * S + s) * a.K + kv_head) * a.C + c)];
      best = std::max(best, score * 0.5);
    }
    w.push_back(best);
  }
  const double top = *std::max_element(w.begin(), w.end());
  for (double& x : w) x = std::exp(x - top);
  const double sum = std::accumulate(w.begin(), w.end(), 0.0);
  for (double& x : w) x /= sum;
  return w;
}

Problem scores_problem(const Scores& a) {
  Problem p;
  p.input("q", a.dtype, {a.T, a.H, a.C}, a.magnitude);
  p.input("summaries", a.dtype, {a.begin / a.P * a.means, a.K, a.C}, a.magnitude);
  p.output("scores", DType::kF32, {a.query_pages(), a.candidates()},
           1e-5 * weight_power(a.scoring));
  p.scratch("scratch",
            [a](const Stream& stream) { return page_scores_scratch_elements(stream, a.shape()); });
  p.run = [a](Stream& stream, const Bound& v) {
    page_scores(stream, {.q_THC = v("q"),
                         .summaries_MKC = v("summaries"),
                         .seen = a.seen(),
                         .chunk_begin = a.begin,
                         .page_tokens = a.P,
                         .means = a.means,
                         .scoring = a.scoring,
                         .scale = 0.5f,
                         .scores_QN = v("scores"),
                         .scratch = v("scratch")});
  };
  p.reference = [a](Values& v) {
    std::vector<double>& scores = v["scores"];
    std::fill(scores.begin(), scores.end(), 0.0);
    const std::int64_t heads = a.scoring == Scoring::kOomb ? a.H / a.K : 1;
    for (std::int64_t t = 0; t < a.seen().queries; ++t)
      for (std::int64_t h = 0; h < a.H; h += heads) {
        const std::vector<double> w = weights(a, v, t, h, heads);
        for (std::size_t i = 0; i < w.size(); ++i)
          scores[index(t / a.P * a.candidates()) + i] += std::pow(w[i], weight_power(a.scoring));
      }
  };
  p.flops = 2.0 * static_cast<double>(a.seen().queries) *
            static_cast<double>((a.scoring == Scoring::kOomb ? a.K : a.H) * a.C) *
            static_cast<double>(a.candidates() * a.means);
  return p;
}

// ---- choose_pages ----

struct Choice {
  std::int64_t query_pages, first_page, candidates, budget, sinks, recent, union_pages;
  bool ties = false;  // few distinct scores
  std::string label() const {
    return fmt::format("queries={} pages={}+{} budget={} sinks={} recent={} union={}{}",
                       query_pages, first_page, candidates, budget, sinks, recent, union_pages,
                       ties ? " ties" : "");
  }
};

// The best `count` of `from`, ascending.
std::vector<std::int64_t> best_of(std::vector<std::int64_t> from, std::int64_t count,
                                  const std::vector<double>& scores) {
  std::stable_sort(from.begin(), from.end(), [&](std::int64_t a, std::int64_t b) {
    return scores[index(a)] > scores[index(b)];
  });
  from.resize(index(std::min(count, std::ssize(from))));
  std::sort(from.begin(), from.end());
  return from;
}

void choose_reference(const Choice& a, Values& v) {
  std::vector<std::int64_t> forced, others;
  for (std::int64_t i = 0; i < a.candidates; ++i)
    (i < a.sinks || i >= a.candidates - a.recent ? forced : others).push_back(i);
  const auto with_forced = [&](std::vector<std::int64_t> pages) {
    pages.insert(pages.end(), forced.begin(), forced.end());
    std::sort(pages.begin(), pages.end());
    return pages;
  };
  const auto store = [&](const std::vector<std::int64_t>& pages, auto to) {
    for (const std::int64_t i : pages) *to++ = static_cast<double>(a.first_page + i);
  };
  std::vector<double> sums(index(a.candidates));
  for (std::int64_t q = 0; q < a.query_pages; ++q)
    for (std::int64_t i = 0; i < a.candidates; ++i)
      sums[index(i)] =
          static_cast<double>(static_cast<float>(sums[index(i)]) +
                              static_cast<float>(v["scores"][index(q * a.candidates + i)]));
  const std::vector<std::int64_t> shared =
      best_of(others, a.union_pages - std::ssize(forced), sums);
  std::fill(v["union"].begin(), v["union"].end(), -1.0);
  std::fill(v["lists"].begin(), v["lists"].end(), -1.0);
  store(with_forced(shared), v["union"].begin());
  for (std::int64_t q = 0; q < a.query_pages; ++q) {
    const std::vector<double> row(v["scores"].begin() + q * a.candidates,
                                  v["scores"].begin() + (q + 1) * a.candidates);
    store(with_forced(best_of(shared, a.budget - std::ssize(forced), row)),
          v["lists"].begin() + q * a.budget);
  }
}

Problem choice_problem(const Choice& a) {
  Problem p;
  HostTensor& scores = p.input("scores", DType::kF32, {a.query_pages, a.candidates});
  for (std::int64_t i = 0; i < scores.elements(); ++i) {
    const double x = std::abs(scores.get(i));
    scores.set(i, a.ties ? std::floor(x * 4) / 4 : x * x * x);
  }
  p.output("union", DType::kI32, {std::max<std::int64_t>(1, std::min(a.union_pages, a.candidates))},
           0);
  p.output("lists", DType::kI32, {a.query_pages + 1, a.budget}, 0);
  p.scratch("sums", [a](const Stream&) { return std::max<std::int64_t>(1, a.candidates); });
  p.run = [a](Stream& stream, const Bound& v) {
    choose_pages(stream, {.scores_QN = v("scores"),
                          .query_pages = a.query_pages,
                          .first_page = a.first_page,
                          .candidates = a.candidates,
                          .budget = a.budget,
                          .sinks = a.sinks,
                          .recent = a.recent,
                          .union_pages = a.union_pages,
                          .sums_N = v("sums"),
                          .union_U = v("union"),
                          .lists_QB = v("lists")});
  };
  p.reference = [a](Values& v) { choose_reference(a, v); };
  p.bytes = static_cast<double>(4 * a.query_pages * a.candidates);
  return p;
}

}  // namespace

std::vector<OpCase> page_selection_cases() {
  OpCase summaries{"summarize_pages", {}, {}}, scores{"page_scores", {}, {}},
      choice{"choose_pages", {}, {}};
  for (Summaries a :
       {Summaries{1, 16, 1, 2, 1}, Summaries{5, 16, 2, 8, 4}, Summaries{3, 48, 3, 6, 3},
        Summaries{4, 128, 2, 64, 4}, Summaries{7, 128, 4, 128, 1},
        Summaries{5, 16, 2, 8, 2, DType::kF32, Summary::kOutliers},
        Summaries{4, 16, 1, 5, 16, DType::kF32, Summary::kOutliers},  // fewer keys than vectors
        Summaries{6, 128, 2, 64, 4, DType::kF32, Summary::kOutliers},
        Summaries{3, 384, 4, 128, 2, DType::kF32, Summary::kOutliers}}) {
    summaries.tests.push_back({a.label(), [a] { return summaries_problem(a); }});
    a.dtype = DType::kBF16;
    summaries.tests16.push_back({a.label(), [a] { return summaries_problem(a); }});
  }
  for (const Scoring scoring : {Scoring::kMass, Scoring::kFocus, Scoring::kOomb}) {
    for (Scores a : {Scores{1, 1, 1, 2, 16, 1, 16}, Scores{37, 6, 2, 8, 16, 1, 64},
                     Scores{40, 4, 1, 16, 16, 4, 96, 0, 33}, Scores{64, 3, 3, 16, 32, 2, 320, 77},
                     Scores{50, 5, 1, 8, 16, 16, 160, 39, 17}}) {
      a.scoring = scoring;
      scores.tests.push_back({a.label(), [a] { return scores_problem(a); }});
    }
    for (Scores a :
         {Scores{128, 2, 1, 64, 128, 1, 256}, Scores{256, 7, 1, 128, 128, 1, 8448},
          Scores{200, 6, 2, 128, 128, 4, 2048, 0, 190}, Scores{130, 4, 4, 64, 64, 2, 1024, 200},
          Scores{70, 6, 2, 96, 16, 1, 4000, 37, 50}, Scores{64, 3, 1, 256, 32, 1, 128},
          Scores{128, 14, 2, 64, 128, 2, 1280, 300, 128}, Scores{20, 2, 1, 64, 16, 2, 20'640, 25},
          Scores{33, 4, 2, 20, 16, 8, 160, 39, 17}}) {
      a.scoring = scoring;
      a.dtype = DType::kBF16;
      for (const double magnitude : {1.0, 8.0}) {
        a.magnitude = magnitude;
        scores.tests16.push_back({a.label(), [a] { return scores_problem(a); }});
      }
    }
  }
  for (const bool ties : {false, true})
    for (Choice a :
         {Choice{1, 0, 1, 1, 0, 0, 1}, Choice{3, 2, 5, 3, 1, 1, 4}, Choice{4, 0, 40, 7, 1, 2, 16},
          Choice{4, 7, 3, 8, 1, 2, 16}, Choice{2, 0, 3, 5, 3, 2, 5},
          Choice{32, 9, 1500, 64, 1, 2, 512}, Choice{32, 0, 300, 64, 0, 0, 512},
          Choice{8, 0, 5000, 3, 1, 2, 700}, Choice{2, 0, 9, 1, 0, 0, 4}}) {
      a.ties = ties;
      choice.tests.push_back({a.label(), [a] { return choice_problem(a); }});
    }
  scores.benchmarks.push_back({"T=1024 H=14 K=2 C=64 begin=65536", [] {
                                 return scores_problem({1024, 14, 2, 64, 128, 1, 65536});
                               }});
  for (const std::int64_t means : {1, 2, 4})
    for (const std::int64_t begin : {131'072, 1'048'576}) {
      Scores a{4096, 28, 4, 128, 128, means, begin};
      a.dtype = DType::kBF16;
      scores.benchmarks16.push_back({a.label(), [a] { return scores_problem(a); }});
    }
  for (const std::int64_t pages : {1024, 8192, 32'768}) {
    const Choice a{32, 0, pages, 64, 1, 2, 512};
    choice.benchmarks.push_back({a.label(), [a] { return choice_problem(a); }});
    choice.benchmarks16.push_back({a.label(), [a] { return choice_problem(a); }});
  }
  for (const Summary summary : {Summary::kMeans, Summary::kOutliers}) {
    const std::int64_t means = summary == Summary::kMeans ? 1 : 4;
    const Summaries here{8, 128, 2, 64, means, DType::kF32, summary},
        s{32, 128, 4, 128, means, DType::kBF16, summary};
    summaries.benchmarks.push_back({here.label(), [here] { return summaries_problem(here); }});
    summaries.benchmarks16.push_back({s.label(), [s] { return summaries_problem(s); }});
  }
  return {summaries, scores, choice};
}

}  // namespace longstride::ops
