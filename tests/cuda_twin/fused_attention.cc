// cuDNN's attention by the twin: the class that wraps it, with plain sums in F32.
#include "ops/cuda/attention_cudnn.h"

#include <cblas.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "device/cuda/cuda_stream.h"
#include "tests/cuda_twin/lanes.h"
#include "tests/cuda_twin/memory.h"
#include "tests/cuda_twin/queue.h"

namespace longstride::ops::cuda {
namespace {

using twin::from_bf16;

// One problem of a batch, one query head.
struct Rows {
  const RunShape& s;
  std::int64_t batch, head;
  std::int64_t query(std::int64_t t) const {
    const std::int64_t C = s.head_size, all = s.tokens * s.query_heads * C;
    return batch * all + (s.packed ? (head * s.tokens + t) * C : (t * s.query_heads + head) * C);
  }
  std::int64_t key(std::int64_t k) const {
    const std::int64_t kv_head = head / (s.query_heads / s.kv_heads);
    return (batch * s.keys + k) * s.kv_stride + kv_head * s.head_size;
  }
  std::int64_t statistic(std::int64_t t) const {
    return (batch * s.query_heads + head) * s.tokens + t;
  }
  std::int64_t seen(std::int64_t t) const { return s.causal ? s.keys - s.tokens + t + 1 : s.keys; }
};

const std::uint16_t* halves(const void* p) { return static_cast<const std::uint16_t*>(p); }
std::uint16_t* halves(void* p) { return static_cast<std::uint16_t*>(p); }

template <class F>
void each_head(const RunShape& s, const F& f) {
  for (std::int64_t b = 0; b < s.batch; ++b)
    for (std::int64_t h = 0; h < s.query_heads; ++h) f(Rows{s, b, h});
}

void need(const void* p, std::int64_t bytes, const char* what) {
  if (!twin::lies_in(twin::Place::kDevice, p, static_cast<std::size_t>(bytes)))
    throw twin::Fault(std::string("attention: ") + what + " is not in one device allocation");
}

void check(const RunShape& s, const void* q, const void* k, const void* v, const void* lse) {
  const std::int64_t queries = s.batch * s.tokens * s.query_heads * s.head_size * 2,
                     keys = ((s.batch * s.keys - 1) * s.kv_stride + s.kv_heads * s.head_size) * 2;
  need(q, queries, "queries");
  need(k, keys, "keys");
  need(v, keys, "values");
  need(lse, s.batch * s.query_heads * s.tokens * 4, "statistics");
}

using Floats = std::vector<float>;

Floats zeros(std::int64_t n) { return Floats(static_cast<std::size_t>(n)); }

// [rows, C] in F32 of a tensor whose row i begins at place(i).
template <class F>
Floats gathered(const void* from, std::int64_t rows, std::int64_t C, const F& place) {
  Floats made = zeros(rows * C);
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t c = 0; c < C; ++c)
      made[static_cast<std::size_t>(i * C + c)] = from_bf16(halves(from)[place(i) + c]);
  return made;
}
template <class F>
void scatter(const Floats& from, void* to, std::int64_t rows, std::int64_t C, const F& place) {
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t c = 0; c < C; ++c)
      halves(to)[place(i) + c] =
          static_cast<std::uint16_t>(twin::to_bf16(from[static_cast<std::size_t>(i * C + c)]));
}

// c = scale * op(a) op(b) + beta * c, row-major, c of [m, n], sums over k.
void product(bool at, bool bt, std::int64_t m, std::int64_t n, std::int64_t k, float scale,
             const Floats& a, const Floats& b, float beta, Floats& c) {
  const auto i = [](std::int64_t v) { return static_cast<int>(v); };
  cblas_sgemm(CblasRowMajor, at ? CblasTrans : CblasNoTrans, bt ? CblasTrans : CblasNoTrans, i(m),
              i(n), i(k), scale, a.data(), i(at ? m : k), b.data(), i(bt ? k : n), beta, c.data(),
              i(n));
}

// One head's queries, keys and values in F32, and the scores between them.
struct Head {
  auto query() const {
    return [this](std::int64_t t) { return rows.query(t); };
  }
  auto key() const {
    return [this](std::int64_t t) { return rows.key(t); };
  }
  std::int64_t T, S, C;
  Rows rows;
  Floats q, k, v, scores;
  Head(const RunShape& s, const Rows& r, const void* q_, const void* k_, const void* v_)
      : T(s.tokens), S(s.keys), C(s.head_size), rows(r), scores(zeros(T * S)) {
    q = gathered(q_, T, C, query());
    k = gathered(k_, S, C, key());
    v = gathered(v_, S, C, key());
    product(false, true, T, S, C, s.scale, q, k, 0, scores);
  }
  float* row(Floats& of, std::int64_t t) const { return of.data() + t * S; }
  std::int64_t seen(std::int64_t t) const { return std::clamp<std::int64_t>(rows.seen(t), 0, S); }
};

void run_forward(const RunShape& s, const RunForward& a) {
  check(s, a.q, a.k, a.v, a.lse);
  each_head(s, [&](const Rows& r) {
    Head h(s, r, a.q, a.k, a.v);
    Floats out = zeros(h.T * h.C);
    for (std::int64_t t = 0; t < h.T; ++t) {
      float* const p = h.row(h.scores, t);
      const std::int64_t n = h.seen(t);
      const float most = n > 0 ? *std::max_element(p, p + n) : 0;
      float sum = 0;
      for (std::int64_t k = 0; k < n; ++k) sum += p[k] = std::exp(p[k] - most);
      for (std::int64_t k = 0; k < n; ++k) p[k] /= sum;
      std::fill(p + n, p + h.S, 0.0f);
      a.lse[r.statistic(t)] = n > 0 ? most + std::log(sum) : -INFINITY;
    }
    product(false, false, h.T, h.C, h.S, 1, h.scores, h.v, 0, out);
    scatter(out, a.out, h.T, h.C, h.query());
  });
}

void run_backward(const RunShape& s, const RunBackward& a) {
  check(s, a.q, a.k, a.v, a.lse);
  const std::int64_t group = s.query_heads / s.kv_heads;
  Floats dk, dv;
  each_head(s, [&](const Rows& r) {
    Head h(s, r, a.q, a.k, a.v);
    const Floats out = gathered(a.out, h.T, h.C, h.query()),
                 dout = gathered(a.dout, h.T, h.C, h.query());
    Floats dp = zeros(h.T * h.S), dq = zeros(h.T * h.C);
    product(false, true, h.T, h.S, h.C, 1, dout, h.v, 0, dp);
    for (std::int64_t t = 0; t < h.T; ++t) {
      float *const p = h.row(h.scores, t), *const d = h.row(dp, t);
      const std::int64_t n = h.seen(t);
      const float lse = a.lse[r.statistic(t)];
      float delta = 0;
      for (std::int64_t c = t * h.C; c < (t + 1) * h.C; ++c)
        delta += out[static_cast<std::size_t>(c)] * dout[static_cast<std::size_t>(c)];
      for (std::int64_t k = 0; k < n; ++k) {
        p[k] = std::exp(p[k] - lse);
        d[k] = p[k] * (d[k] - delta);
      }
      std::fill(p + n, p + h.S, 0.0f);
      std::fill(d + n, d + h.S, 0.0f);
    }
    if (r.head % group == 0) {
      dk = zeros(h.S * h.C);
      dv = dk;
    }
    product(false, false, h.T, h.C, h.S, s.scale, dp, h.k, 0, dq);
    product(true, false, h.S, h.C, h.T, s.scale, dp, h.q, 1, dk);
    product(true, false, h.S, h.C, h.T, 1, h.scores, dout, 1, dv);
    scatter(dq, a.dq, h.T, h.C, h.query());
    if (r.head % group != group - 1) return;
    scatter(dk, a.dk, h.S, h.C, h.key());
    scatter(dv, a.dv, h.S, h.C, h.key());
  });
}

}  // namespace

struct CudnnAttention::Plans {
  cudaStream_t stream;
  std::set<std::pair<RunShape, Pass>> made;
};

std::string cudnn_version() { return "twin"; }

CudnnAttention::CudnnAttention(Stream& stream)
    : plans_(new Plans{longstride::cuda::cuda_stream(stream).handle(), {}}) {}
CudnnAttention::~CudnnAttention() = default;

bool CudnnAttention::supports(const RunShape& shape, Pass pass) {
  plans_->made.emplace(shape, pass);
  return true;
}

void CudnnAttention::forward(const RunShape& shape, const RunForward& a) {
  twin::enqueue(plans_->stream, [=] { run_forward(shape, a); });
}
void CudnnAttention::backward(const RunShape& shape, const RunBackward& a, Pass) {
  twin::enqueue(plans_->stream, [=] { run_backward(shape, a); });
}
std::int64_t CudnnAttention::workspace_bytes() const { return 0; }
std::int64_t CudnnAttention::plans_made() const {
  return static_cast<std::int64_t>(plans_->made.size());
}

}  // namespace longstride::ops::cuda
