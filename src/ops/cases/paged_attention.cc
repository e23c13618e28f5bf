#include "ops/paged_attention.h"

#include <algorithm>
#include <cmath>

#include "ops/cases/registry.h"

namespace longstride::ops {
namespace {

// A chunk of T queries that begins at `begin`, over pages of P tokens. `window` 0 is dense;
// `document` is where the only document boundary lies; `skip` > 0 leaves every skip-th earlier page
// out of the lists, as sparse attention does.
struct Attention {
  std::int64_t T, H, K, C, P, begin;
  std::int64_t window = 0, document = 0, skip = 0;

  std::int64_t tokens() const { return begin + T; }
  std::int64_t pages() const { return (tokens() + P - 1) / P; }
  std::int64_t query_pages() const { return (T + P - 1) / P; }
  float scale() const { return 0.5f; }
  std::int64_t first_visible(std::int64_t t) const {
    const std::int64_t start = t >= document ? document : 0;
    return window == 0 ? start : std::max(start, t - window + 1);
  }
  // Whether the query page (of the chunk) visits the KV page.
  bool visits(std::int64_t query_page, std::int64_t page) const {
    const std::int64_t own = begin / P + query_page;
    const bool skipped = skip > 0 && page < own && page % skip == 0;
    return page <= own && page >= first_visible(begin + query_page * P) / P && !skipped;
  }
  bool sees(std::int64_t t, std::int64_t s) const {
    return visits((t - begin) / P, s / P) && first_visible(t) <= s && s <= t;
  }
  double visible_pairs() const {
    double n = 0;
    for (std::int64_t t = begin; t < tokens(); ++t)
      n += static_cast<double>(t + 1 - first_visible(t));
    return n;
  }
  std::string label() const {
    return fmt::format("T={} H={} K={} C={} P={} begin={}{}{}{}", T, H, K, C, P, begin,
                       window ? fmt::format(" window={}", window) : "",
                       document ? fmt::format(" document={}", document) : "",
                       skip ? fmt::format(" skip={}", skip) : "");
  }
};

template <class T>
void add_integers(Problem& p, const std::string& name, const std::vector<T>& values) {
  HostTensor& tensor = p.input(name, dtype_of<T>(), {static_cast<std::int64_t>(values.size())});
  for (std::size_t i = 0; i < values.size(); ++i)
    tensor.set(static_cast<std::int64_t>(i), static_cast<double>(values[i]));
}

// Page tables (pages lie in reverse order) and visit lists with their transpose.
void add_lists(Problem& p, const Attention& a) {
  std::vector<std::int32_t> slots, kv_pages, visited, back_queries;
  std::vector<std::int64_t> offsets = {0}, back_offsets = {0}, first_visible;
  for (std::int64_t page = 0; page < a.pages(); ++page)
    slots.push_back(static_cast<std::int32_t>(a.pages() - 1 - page));
  for (std::int64_t t = a.begin; t < a.tokens(); ++t) first_visible.push_back(a.first_visible(t));
  for (std::int64_t q = 0; q < a.query_pages(); ++q) {
    for (std::int64_t page = 0; page < a.pages(); ++page)
      if (a.visits(q, page)) kv_pages.push_back(static_cast<std::int32_t>(page));
    offsets.push_back(static_cast<std::int64_t>(kv_pages.size()));
  }
  for (std::int64_t page = 0; page < a.pages(); ++page) {
    const std::size_t before = back_queries.size();
    for (std::int64_t q = 0; q < a.query_pages(); ++q)
      if (a.visits(q, page)) back_queries.push_back(static_cast<std::int32_t>(q));
    if (back_queries.size() == before) continue;
    visited.push_back(static_cast<std::int32_t>(page));
    back_offsets.push_back(static_cast<std::int64_t>(back_queries.size()));
  }
  add_integers(p, "slots", slots);
  add_integers(p, "offsets", offsets);
  add_integers(p, "kv_pages", kv_pages);
  add_integers(p, "first_visible", first_visible);
  add_integers(p, "visited", visited);
  add_integers(p, "back_offsets", back_offsets);
  add_integers(p, "back_queries", back_queries);
}

PagesView pages_of(const Bound& v, const char* pool, const Attention& a) {
  return {static_cast<std::byte*>(v(pool).data()),
          v("slots").as<std::int32_t>(),
          2 * a.P * a.K * a.C * 4,
          a.P,
          a.K,
          a.C,
          DType::kF32};
}

VisitsView visits_of(const Bound& v, const Attention& a) {
  return {a.begin,
          a.query_pages(),
          v("offsets").as<std::int64_t>(),
          v("kv_pages").as<std::int32_t>(),
          v("first_visible").as<std::int64_t>(),
          v("visited").dim(0),
          v("visited").as<std::int32_t>(),
          v("back_offsets").as<std::int64_t>(),
          v("back_queries").as<std::int32_t>()};
}

// Index of (key or value of token s, KV head, first element) in the pool.
std::size_t at(const Attention& a, std::int64_t s, int plane, std::int64_t kv_head) {
  const std::int64_t slot = a.pages() - 1 - s / a.P;
  return static_cast<std::size_t>((((slot * 2 + plane) * a.P + s % a.P) * a.K + kv_head) * a.C);
}

struct Row {
  std::vector<double> weights;  // by key; 0 where hidden
  std::vector<double> out;
  double lse = 0;
};

Row attend(const Attention& a, const std::vector<double>& q, const std::vector<double>& pool,
           std::int64_t t, std::int64_t head) {
  Row row{std::vector<double>(static_cast<std::size_t>(a.tokens())),
          std::vector<double>(static_cast<std::size_t>(a.C)), 0};
  const std::int64_t kv_head = head / (a.H / a.K);
  double sum = 0;
  for (std::int64_t s = 0; s <= t; ++s) {
    if (!a.sees(t, s)) continue;
    double score = 0;
    for (std::int64_t c = 0; c < a.C; ++c)
      score += q[static_cast<std::size_t>(((t - a.begin) * a.H + head) * a.C + c)] *
               pool[at(a, s, 0, kv_head) + static_cast<std::size_t>(c)];
    sum += row.weights[static_cast<std::size_t>(s)] =
        std::exp(score * static_cast<double>(a.scale()));
  }
  for (std::int64_t s = 0; s <= t; ++s) {
    double& weight = row.weights[static_cast<std::size_t>(s)];
    weight /= sum;
    for (std::int64_t c = 0; c < a.C && weight > 0; ++c)
      row.out[static_cast<std::size_t>(c)] +=
          weight * pool[at(a, s, 1, kv_head) + static_cast<std::size_t>(c)];
  }
  row.lse = std::log(sum);
  return row;
}

Problem forward_problem(const Attention& a) {
  Problem p;
  p.input("q", DType::kF32, {a.T, a.H, a.C});
  p.input("pool", DType::kF32, {a.pages(), 2, a.P, a.K * a.C});
  add_lists(p, a);
  p.output("out", DType::kF32, {a.T, a.H, a.C});
  p.output("lse", DType::kF32, {a.H, a.T});
  p.scratch("scratch", paged_attention_scratch_elements({a.T, a.H, a.K, a.C, a.P}));
  p.run = [a](Stream& stream, const Bound& v) {
    paged_attention_forward(stream, {v("q"), pages_of(v, "pool", a), visits_of(v, a), v("out"),
                                     v("lse"), a.scale(), v("scratch")});
  };
  p.reference = [a](Values& v) {
    for (std::int64_t t = a.begin; t < a.tokens(); ++t)
      for (std::int64_t head = 0; head < a.H; ++head) {
        const Row row = attend(a, v["q"], v["pool"], t, head);
        std::copy(row.out.begin(), row.out.end(),
                  v["out"].begin() + ((t - a.begin) * a.H + head) * a.C);
        v["lse"][static_cast<std::size_t>(head * a.T + t - a.begin)] = row.lse;
      }
  };
  p.flops = 4.0 * static_cast<double>(a.H * a.C) * a.visible_pairs();
  return p;
}

// out and lse are what the forward pass gave: computed from q and the pool when the problem is
// made.
void fill_forward(Problem& p, const Attention& a) {
  const auto values = [&](const char* name) {
    const auto found = std::find_if(p.arguments.begin(), p.arguments.end(),
                                    [&](const Argument& x) { return x.name == name; });
    std::vector<double> all(static_cast<std::size_t>(found->tensor.elements()));
    for (std::size_t i = 0; i < all.size(); ++i)
      all[i] = found->tensor.get(static_cast<std::int64_t>(i));
    return all;
  };
  const std::vector<double> q = values("q"), pool = values("pool");
  HostTensor out(DType::kF32, {a.T, a.H, a.C}), lse(DType::kF32, {a.H, a.T});
  for (std::int64_t t = 0; t < a.T; ++t)
    for (std::int64_t head = 0; head < a.H; ++head) {
      const Row row = attend(a, q, pool, a.begin + t, head);
      for (std::int64_t c = 0; c < a.C; ++c)
        out.set((t * a.H + head) * a.C + c, row.out[static_cast<std::size_t>(c)]);
      lse.set(head * a.T + t, row.lse);
    }
  p.input("out", DType::kF32, {a.T, a.H, a.C}) = out;
  p.input("lse", DType::kF32, {a.H, a.T}) = lse;
}

void backward_reference(const Attention& a, Values& v) {
  std::vector<double>&dq = v["dq"], &dpool = v["dpool"];
  std::fill(dq.begin(), dq.end(), 0.0);
  for (std::int64_t t = a.begin; t < a.tokens(); ++t)
    for (std::int64_t head = 0; head < a.H; ++head) {
      const Row row = attend(a, v["q"], v["pool"], t, head);
      const auto query = static_cast<std::size_t>(((t - a.begin) * a.H + head) * a.C),
                 C = static_cast<std::size_t>(a.C);
      const std::int64_t kv_head = head / (a.H / a.K);
      double delta = 0;
      for (std::size_t c = 0; c < C; ++c) delta += v["dout"][query + c] * row.out[c];
      for (std::int64_t s = 0; s <= t; ++s) {
        const double weight = row.weights[static_cast<std::size_t>(s)];
        if (!a.sees(t, s)) continue;
        const std::size_t key = at(a, s, 0, kv_head), value = at(a, s, 1, kv_head);
        double d_weight = 0;
        for (std::size_t c = 0; c < C; ++c) d_weight += v["dout"][query + c] * v["pool"][value + c];
        const double d_score = weight * (d_weight - delta) * static_cast<double>(a.scale());
        for (std::size_t c = 0; c < C; ++c) {
          dq[query + c] += d_score * v["pool"][key + c];
          dpool[key + c] += d_score * v["q"][query + c];
          dpool[value + c] += weight * v["dout"][query + c];
        }
      }
    }
}

Problem backward_problem(const Attention& a, bool checked) {
  Problem p;
  p.input("q", DType::kF32, {a.T, a.H, a.C});
  p.input("dout", DType::kF32, {a.T, a.H, a.C});
  p.input("pool", DType::kF32, {a.pages(), 2, a.P, a.K * a.C});
  add_lists(p, a);
  if (checked) {
    fill_forward(p, a);
  } else {  // the plain reference takes long at benchmark shapes, and the time does not depend on
            // values
    p.input("out", DType::kF32, {a.T, a.H, a.C});
    p.input("lse", DType::kF32, {a.H, a.T});
  }
  p.output("dq", DType::kF32, {a.T, a.H, a.C}, 2e-5);
  p.update("dpool", DType::kF32, {a.pages(), 2, a.P, a.K * a.C}, 2e-5);
  p.scratch("scratch", paged_attention_scratch_elements({a.T, a.H, a.K, a.C, a.P}));
  p.run = [a](Stream& stream, const Bound& v) {
    paged_attention_backward(
        stream, {v("q"), v("out"), v("lse"), v("dout"), pages_of(v, "pool", a),
                 pages_of(v, "dpool", a), visits_of(v, a), v("dq"), a.scale(), v("scratch")});
  };
  p.reference = [a](Values& v) { backward_reference(a, v); };
  p.loss = [a](const Values& v) {
    double sum = 0;
    for (std::int64_t t = a.begin; t < a.tokens(); ++t)
      for (std::int64_t head = 0; head < a.H; ++head) {
        const Row row = attend(a, v.at("q"), v.at("pool"), t, head);
        for (std::int64_t c = 0; c < a.C; ++c)
          sum += v.at("dout")[static_cast<std::size_t>(((t - a.begin) * a.H + head) * a.C + c)] *
                 row.out[static_cast<std::size_t>(c)];
      }
    return sum;
  };
  p.gradients = {{"q", "dq"}, {"pool", "dpool"}};
  p.flops = 10.0 * static_cast<double>(a.H * a.C) * a.visible_pairs();
  return p;
}

}  // namespace

std::vector<OpCase> paged_attention_cases() {
  OpCase forward{"paged_attention_forward", {}, {}}, backward{"paged_attention_backward", {}, {}};
  for (const Attention& a :
       {Attention{1, 1, 1, 2, 16, 0}, Attention{16, 2, 1, 4, 16, 0}, Attention{37, 6, 2, 8, 16, 32},
        Attention{64, 3, 3, 16, 32, 96}, Attention{40, 4, 4, 6, 16, 64, 20},
        Attention{50, 4, 2, 8, 16, 48, 0, 70}, Attention{50, 5, 1, 8, 16, 48, 33, 60},
        Attention{33, 2, 1, 10, 16, 112, 0, 0, 2}, Attention{20, 9, 3, 4, 48, 144, 1}}) {
    forward.tests.push_back({a.label(), [a] { return forward_problem(a); }});
    backward.tests.push_back({a.label(), [a] { return backward_problem(a, true); }});
  }
  for (const Attention& a :
       {Attention{512, 8, 2, 64, 128, 8192}, Attention{1024, 14, 2, 64, 128, 4096},
        Attention{512, 8, 8, 128, 128, 4096}}) {
    forward.benchmarks.push_back({a.label(), [a] { return forward_problem(a); }});
    backward.benchmarks.push_back({a.label(), [a] { return backward_problem(a, false); }});
  }
  return {forward, backward};
}

}  // namespace longstride::ops
