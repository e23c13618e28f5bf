#include "ops/paged_attention.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "ops/cases/registry.h"
#include "tensor/selected_pages.h"
#include "tensor/stochastic_round.h"

namespace longstride::ops {
namespace {

// A chunk of T queries that begins at `begin`, over pages of P tokens. `window` 0 is dense;
// documents begin at 0, at `earlier` and at `document`. Sparse attention, of pages before the
// chunk: `skip` > 0 leaves every skip-th out, others for each query page; `selected` >= 0 is how
// many pseudo-random ones a query page visits, if documents hide none.
struct Attention {
  std::int64_t T, H, K, C, P, begin;
  std::int64_t window = 0, document = 0, skip = 0;
  bool in_order = false;  // pages are in the order of tokens, not in reverse
  DType compute = DType::kF32;
  DType gradient = DType::kF32;  // of gradient pages
  bool exact = true;             // the backward pass gives the same bits every time
  std::int64_t earlier = 0;
  std::int64_t selected = -1;

  double tolerance(double in_f32) const { return compute == DType::kF32 ? in_f32 : 0x1p-6; }
  // Stochastic rounding to BF16 is off by less than one unit in the last place.
  double gradient_tolerance() const {
    return tolerance(2e-5) + (gradient == DType::kBF16 ? 0x1p-7 : 0);
  }

  std::int64_t tokens() const { return begin + T; }
  std::int64_t pages() const { return (tokens() + P - 1) / P; }
  std::int64_t slot(std::int64_t page) const { return in_order ? page : pages() - 1 - page; }
  std::int64_t query_pages() const { return (T + P - 1) / P; }
  float scale() const { return 0.5f; }
  std::int64_t first_visible(std::int64_t t) const {
    const std::int64_t start = document > 0 && t >= document ? document
                               : t >= earlier                ? earlier
                                                             : 0;
    return window == 0 ? start : std::max(start, t - window + 1);
  }
  bool sparse() const { return skip > 0 || selected >= 0; }
  // An affine map permutes the pages before the chunk, another one for each query page; the first
  // ones of the result are selected.
  bool is_selected(std::int64_t query_page, std::int64_t page) const {
    const std::int64_t pages_before = begin / P;
    const auto number = [&](std::int64_t i) {
      return static_cast<std::int64_t>(mixed(static_cast<std::uint64_t>(query_page), i) %
                                       static_cast<std::uint64_t>(pages_before));
    };
    std::int64_t factor = number(0);
    while (std::gcd(factor, pages_before) != 1) ++factor;
    return (page * factor + number(1)) % pages_before < selected;
  }
  // Whether the query page (of the chunk) visits the KV page.
  bool visits(std::int64_t query_page, std::int64_t page) const {
    const std::int64_t first_own = begin / P;
    if (page > first_own + query_page) return false;
    if (sparse() && page >= first_own) return true;
    if (page < first_visible(begin + query_page * P) / P) return false;
    if (selected >= 0) return is_selected(query_page, page);
    return skip == 0 || (page + query_page) % skip != 0;
  }
  bool sees(std::int64_t t, std::int64_t s) const {
    return visits((t - begin) / P, s / P) && first_visible(t) <= s && s <= t;
  }
  // The queries before a document that begins within the chunk; all if none does.
  DenseKeys dense() const {
    return {first_visible(begin), document > begin && document < tokens() ? document - begin : T};
  }
  AttentionKind kind() const {
    if (sparse()) return AttentionKind::kSparse;
    const DenseKeys d = dense();
    const bool common = first_visible(begin + d.queries - 1) == d.first;
    return common && (d.queries == T || d.first < begin) ? AttentionKind::kDense
                                                         : AttentionKind::kWindow;
  }
  // The segments of the keys, for a pass on this kind of device.
  std::vector<KeySegment> segments(const Stream& stream, bool backward) const {
    return cut_keys({.kind = kind(),
                     .dense = dense(),
                     .first = first_visible(begin),
                     .chunk_begin = begin,
                     .tokens = T,
                     .page_tokens = P},
                    paged_attention_cut(stream.kind(), {shape(), backward, exact}));
  }
  PagedAttentionShape shape() const { return {T, H, K, C, P, compute}; }
  double visible_pairs() const {
    std::int64_t n = 0;
    for (std::int64_t q = 0; q < query_pages(); ++q)
      for (std::int64_t page = 0; page < pages(); ++page) {
        if (!visits(q, page)) continue;
        for (std::int64_t t = begin + q * P; t < std::min(begin + (q + 1) * P, tokens()); ++t)
          n += std::max<std::int64_t>(
              0, std::min(t + 1, (page + 1) * P) - std::max(first_visible(t), page * P));
      }
    return static_cast<double>(n);
  }
  std::string label() const {
    return fmt::format("T={} H={} K={} C={} P={} begin={}{}{}{}", T, H, K, C, P, begin,
                       window ? fmt::format(" window={}", window) : "",
                       (earlier ? fmt::format(" earlier={}", earlier) : "") +
                           (document ? fmt::format(" document={}", document) : ""),
                       (skip ? fmt::format(" skip={}", skip) : "") +
                           (selected >= 0 ? fmt::format(" selected={}", selected) : "")) +
           (in_order ? " in order" : "") + (compute == DType::kF32 ? "" : " in BF16") +
           (gradient == DType::kF32 ? "" : " gradient pages in BF16") + (exact ? "" : " fast");
  }
};

// Page tables (pages are in reverse order) and visit lists with their transpose. They stay on the
// host.
struct Lists {
  std::vector<std::int32_t> slots, kv_pages, visited, back_queries;
  std::vector<std::int64_t> offsets = {0}, back_offsets = {0}, first_visible;

  explicit Lists(const Attention& a) {
    for (std::int64_t page = 0; page < a.pages(); ++page)
      slots.push_back(static_cast<std::int32_t>(a.slot(page)));
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
  }

  PagesView pages(std::byte* base, const Attention& a, DType dtype) const {
    return {base, slots.data(), 2 * a.P * a.K * a.C * size_of(dtype), a.P, a.K, a.C, dtype};
  }
  VisitsView visits(const Attention& a) const {
    return {.kind = a.kind(),
            .dense = a.dense(),
            .chunk_begin = a.begin,
            .query_pages = a.query_pages(),
            .offsets = offsets.data(),
            .kv_pages = kv_pages.data(),
            .first_visible = first_visible.data(),
            .visited_pages = std::ssize(visited),
            .visited = visited.data(),
            .back_offsets = back_offsets.data(),
            .back_queries = back_queries.data()};
  }
};

PagesView pages_of(const Bound& v, const char* pool, const Attention& a, const Lists& lists) {
  return lists.pages(static_cast<std::byte*>(v(pool).data()), a, v(pool).dtype());
}

// Index of (key or value of token s, KV head, first element) in the pool.
std::size_t at(const Attention& a, std::int64_t s, int plane, std::int64_t kv_head) {
  const std::int64_t row = (a.slot(s / a.P) * a.P + s % a.P) * 2 + plane;
  return static_cast<std::size_t>((row * a.K + kv_head) * a.C);
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

void add_scratch(Problem& p, const Attention& a) {
  PagedAttentionShape shape = a.shape();
  if (a.sparse()) {
    const Lists lists(a);
    const SelectedCount selected = count_selected(lists.visits(a), a.P);
    shape.selected_pages = selected.most;
    shape.union_pages = selected.distinct;
  }
  p.scratch("scratch", [shape](const Stream& stream) {
    return paged_attention_scratch_elements(stream, shape);
  });
}

Problem forward_problem(const Attention& a) {
  Problem p;
  p.input("q", a.compute, {a.T, a.H, a.C});
  p.input("pool", a.compute, {a.pages(), a.P, 2, a.K * a.C});
  p.output("out", a.compute, {a.T, a.H, a.C}, a.tolerance(Problem::kTolerance));
  p.output("lse", DType::kF32, {a.H, a.T}, a.tolerance(Problem::kTolerance));
  add_scratch(p, a);
  p.run = [a, lists = Lists(a)](Stream& stream, const Bound& v) {
    const std::vector<KeySegment> segments = a.segments(stream, false);
    paged_attention_forward(stream, {.q_THC = v("q"),
                                     .kv = pages_of(v, "pool", a, lists),
                                     .visits = lists.visits(a),
                                     .out_THC = v("out"),
                                     .lse_HT = v("lse"),
                                     .scale = a.scale(),
                                     .scratch = v("scratch"),
                                     .segments = segments});
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

// Sets out and lse to the forward pass's results, computed from q and the pool when the problem is
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
  HostTensor out(a.compute, {a.T, a.H, a.C}), lse(DType::kF32, {a.H, a.T});
  for (std::int64_t t = 0; t < a.T; ++t)
    for (std::int64_t head = 0; head < a.H; ++head) {
      const Row row = attend(a, q, pool, a.begin + t, head);
      for (std::int64_t c = 0; c < a.C; ++c)
        out.set((t * a.H + head) * a.C + c, row.out[static_cast<std::size_t>(c)]);
      lse.set(head * a.T + t, row.lse);
    }
  p.input("out", a.compute, {a.T, a.H, a.C}) = out;
  p.input("lse", DType::kF32, {a.H, a.T}) = lse;
}

void backward_reference(const Attention& a, Values& v) {
  std::vector<double>&dq = v["dq"], &dpool = v["dpool"];
  const std::vector<double>&q = v["q"], &pool = v["pool"], &dout = v["dout"];
  std::fill(dq.begin(), dq.end(), 0.0);
  for (std::int64_t t = a.begin; t < a.tokens(); ++t)
    for (std::int64_t head = 0; head < a.H; ++head) {
      const Row row = attend(a, q, pool, t, head);
      const auto query = static_cast<std::size_t>(((t - a.begin) * a.H + head) * a.C),
                 C = static_cast<std::size_t>(a.C);
      const std::int64_t kv_head = head / (a.H / a.K);
      double delta = 0;
      for (std::size_t c = 0; c < C; ++c) delta += dout[query + c] * row.out[c];
      for (std::int64_t s = 0; s <= t; ++s) {
        const double weight = row.weights[static_cast<std::size_t>(s)];
        if (!a.sees(t, s)) continue;
        const std::size_t key = at(a, s, 0, kv_head), value = at(a, s, 1, kv_head);
        double d_weight = 0;
        for (std::size_t c = 0; c < C; ++c) d_weight += dout[query + c] * pool[value + c];
        const double d_score = weight * (d_weight - delta) * static_cast<double>(a.scale());
        for (std::size_t c = 0; c < C; ++c) {
          dq[query + c] += d_score * pool[key + c];
          dpool[key + c] += d_score * q[query + c];
          dpool[value + c] += weight * dout[query + c];
        }
      }
    }
}

constexpr std::uint64_t kRounding = 42;

Problem backward_problem(const Attention& a, bool checked) {
  Problem p;
  p.input("q", a.compute, {a.T, a.H, a.C});
  p.input("dout", a.compute, {a.T, a.H, a.C});
  p.input("pool", a.compute, {a.pages(), a.P, 2, a.K * a.C});
  if (checked) {
    fill_forward(p, a);
  } else {  // the reference is slow at benchmark shapes, and a call's time does not depend on
            // values
    p.input("out", a.compute, {a.T, a.H, a.C});
    p.input("lse", DType::kF32, {a.H, a.T});
  }
  p.repeats = a.exact;
  p.output("dq", a.compute, {a.T, a.H, a.C}, a.tolerance(2e-5));
  // A query that sees only itself has weight 1 whatever its value, so the terms of dq cancel.
  if (a.window == 1) p.arguments.back().magnitude = 1;
  p.update("dpool", a.gradient, {a.pages(), a.P, 2, a.K * a.C}, a.gradient_tolerance());
  add_scratch(p, a);
  p.run = [a, lists = Lists(a)](Stream& stream, const Bound& v) {
    const std::vector<KeySegment> segments = a.segments(stream, true);
    paged_attention_backward(stream, {.q_THC = v("q"),
                                      .out_THC = v("out"),
                                      .lse_HT = v("lse"),
                                      .dout_THC = v("dout"),
                                      .kv = pages_of(v, "pool", a, lists),
                                      .kv_gradient = pages_of(v, "dpool", a, lists),
                                      .visits = lists.visits(a),
                                      .dq_THC = v("dq"),
                                      .scale = a.scale(),
                                      .scratch = v("scratch"),
                                      .exact = a.exact,
                                      .segments = segments,
                                      .rounding = kRounding});
  };
  p.reference = [a](Values& v) { backward_reference(a, v); };
  p.flops = 10.0 * static_cast<double>(a.H * a.C) * a.visible_pairs();
  // Finite differences need more digits.
  if (a.compute != DType::kF32 || a.gradient != DType::kF32) return p;
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
  return p;
}

}  // namespace

std::vector<OpCase> paged_attention_cases() {
  OpCase forward{"paged_attention_forward", {}, {}}, backward{"paged_attention_backward", {}, {}};
  for (const Attention& a :
       {Attention{1, 1, 1, 2, 16, 0}, Attention{16, 2, 1, 4, 16, 0}, Attention{37, 6, 2, 8, 16, 32},
        Attention{64, 3, 3, 16, 32, 96}, Attention{40, 4, 4, 6, 16, 64, 20},
        Attention{50, 4, 2, 8, 16, 48, 0, 70}, Attention{50, 5, 1, 8, 16, 48, 33, 60},
        Attention{33, 2, 1, 10, 16, 112, 0, 0, 2}, Attention{20, 9, 3, 4, 48, 144, 2},
        Attention{20, 9, 3, 4, 48, 144, 1},
        Attention{.T = 48, .H = 2, .K = 1, .C = 8, .P = 16, .begin = 160, .selected = 3},
        Attention{.T = 40, .H = 3, .K = 1, .C = 6, .P = 16, .begin = 96, .selected = 0},
        Attention{.T = 48,
        .H = 2,
        .K = 2,
        .C = 4,
        .P = 16,
        .begin = 96,
        .document = 120,
        .selected = 4}}) {
    forward.tests.push_back({a.label(), [a] { return forward_problem(a); }});
    for (const DType gradient : {DType::kF32, DType::kBF16}) {
      Attention b = a;
      b.gradient = gradient;
      backward.tests.push_back({b.label(), [b] { return backward_problem(b, true); }});
    }
  }
  for (const Attention& a :
       {Attention{512, 8, 2, 64, 128, 8192}, Attention{1024, 14, 2, 64, 128, 4096},
        Attention{512, 8, 8, 128, 128, 4096}}) {
    forward.benchmarks.push_back({a.label(), [a] { return forward_problem(a); }});
    backward.benchmarks.push_back({a.label(), [a] { return backward_problem(a, false); }});
  }
  for (Attention a :
       {Attention{16, 2, 1, 16, 16, 0}, Attention{37, 6, 2, 32, 16, 32},
        Attention{128, 4, 2, 64, 64, 256}, Attention{100, 4, 1, 96, 32, 64, 20},
        Attention{150, 4, 2, 128, 64, 192, 0, 230}, Attention{70, 2, 1, 256, 32, 64, 33, 80},
        Attention{130, 2, 1, 128, 64, 448, 0, 0, 2}, Attention{160, 2, 1, 128, 128, 384, 200},
        Attention{160, 6, 2, 64, 128, 256, 0, 350}, Attention{140, 3, 1, 96, 128, 256, 0, 0, 2},
        Attention{90, 3, 1, 128, 48, 144, 0, 190}, Attention{130, 2, 2, 72, 64, 128, 50},
        Attention{128, 4, 2, 64, 64, 256, 0, 100}, Attention{40, 2, 1, 64, 128, 33024},
        Attention{128, 4, 2, 256, 64, 256}, Attention{40, 2, 1, 64, 128, 33024, 0, 33040},
        // Documents that began before the chunk: more than 1024 keys ago, fewer, and all in one
        // segment.
        Attention{40, 2, 1, 64, 128, 33024, 0, 700}, Attention{200, 4, 2, 64, 64, 2048, 0, 1500},
        Attention{150, 2, 1, 128, 64, 2048, 0, 900},
        // A document that began before the chunk and ends within it.
        Attention{.T = 150,
        .H = 2,
        .K = 1,
        .C = 64,
        .P = 64,
        .begin = 34'048,
        .document = 34'120,
        .earlier = 700}}) {
    a.compute = DType::kBF16;
    for (bool in_order : {false, true}) {
      a.in_order = in_order;
      forward.tests16.push_back({a.label(), [a] { return forward_problem(a); }});
      for (const DType gradient : {DType::kF32, DType::kBF16}) {
        Attention b = a;
        b.gradient = gradient;
        backward.tests16.push_back({b.label(), [b] { return backward_problem(b, true); }});
      }
    }
  }
  // Selected pages: none, few, more than are copied at a time, with all group sizes; lists of equal
  // lengths by leaving pages out; chunks of cut pages and documents, which our kernels compute.
  for (Attention a :
       {Attention{.T = 128, .H = 2, .K = 2, .C = 64, .P = 64, .begin = 0, .selected = 0},
        Attention{.T = 256, .H = 4, .K = 2, .C = 128, .P = 128, .begin = 256, .selected = 0},
        Attention{.T = 128, .H = 3, .K = 1, .C = 64, .P = 64, .begin = 256, .selected = 1},
        Attention{.T = 256, .H = 2, .K = 2, .C = 128, .P = 64, .begin = 512, .selected = 3},
        Attention{.T = 128, .H = 7, .K = 1, .C = 128, .P = 64, .begin = 512, .selected = 3},
        Attention{.T = 256, .H = 4, .K = 2, .C = 128, .P = 128, .begin = 1024, .selected = 3},
        Attention{.T = 128, .H = 14, .K = 2, .C = 64, .P = 64, .begin = 512, .selected = 5},
        Attention{.T = 64, .H = 1, .K = 1, .C = 64, .P = 64, .begin = 4224, .selected = 64},
        Attention{.T = 128, .H = 2, .K = 1, .C = 64, .P = 64, .begin = 5120, .selected = 70},
        Attention{.T = 32, .H = 6, .K = 2, .C = 64, .P = 16, .begin = 3200, .selected = 130},
        Attention{.T = 128, .H = 2, .K = 1, .C = 96, .P = 64, .begin = 512, .skip = 4},
        Attention{.T = 150, .H = 2, .K = 1, .C = 128, .P = 64, .begin = 512, .selected = 3},
        Attention{.T = 128,
        .H = 2,
        .K = 1,
        .C = 64,
        .P = 64,
        .begin = 512,
        .document = 600,
        .selected = 3},
        Attention{.T = 128,
        .H = 2,
        .K = 1,
        .C = 64,
        .P = 64,
        .begin = 512,
        .earlier = 100,
        .selected = 3}}) {
    a.compute = DType::kBF16;
    for (bool in_order : {false, true}) {
      a.in_order = in_order;
      forward.tests16.push_back({a.label(), [a] { return forward_problem(a); }});
      for (const DType gradient : {DType::kF32, DType::kBF16})
        for (const bool exact : {true, false}) {
          Attention b = a;
          b.gradient = gradient;
          b.exact = exact;
          backward.tests16.push_back({b.label(), [b] { return backward_problem(b, true); }});
        }
    }
  }
  // Dense, a window, documents (little or much before the chunk), every second page, selected
  // pages.
  for (Attention a :
       {Attention{4096, 28, 4, 128, 128, 0}, Attention{4096, 28, 4, 128, 128, 61440},
        Attention{4096, 28, 4, 128, 128, 8192, 1024},
        Attention{4096, 28, 4, 128, 128, 8192, 0, 10240},
        Attention{4096, 28, 4, 128, 128, 61440, 0, 63488},
        Attention{4096, 28, 4, 128, 128, 61440, 0, 12345},
        Attention{4096, 28, 4, 128, 128, 28672, 0, 0, 2},
        Attention{4096, 16, 4, 64, 128, 8192, 1024}, Attention{4096, 16, 4, 96, 128, 8192, 1024},
        Attention{4096, 16, 4, 256, 128, 8192, 1024},
        Attention{.T = 4096, .H = 28, .K = 4, .C = 128, .P = 128, .begin = 131'072, .selected = 64},
        Attention{.T = 4096, .H = 12, .K = 2, .C = 128, .P = 128, .begin = 131'072, .selected = 64},
        Attention{
            .T = 4096, .H = 28, .K = 4, .C = 128, .P = 128, .begin = 131'072, .selected = 128}}) {
    a.compute = DType::kBF16;
    a.in_order = true;
    forward.benchmarks16.push_back({a.label(), [a] { return forward_problem(a); }});
    const bool by_cudnn = a.window == 0 && a.document == 0;
    for (const DType gradient : {DType::kF32, DType::kBF16}) {
      if (gradient == DType::kBF16 && a.C != 128) continue;
      for (const bool exact : {true, false}) {
        if (!exact && !by_cudnn) continue;  // our own kernels are always exact
        Attention b = a;
        b.gradient = gradient;
        b.exact = exact;
        backward.benchmarks16.push_back({b.label(), [b] { return backward_problem(b, false); }});
      }
    }
  }
  return {forward, backward};
}

}  // namespace longstride::ops
