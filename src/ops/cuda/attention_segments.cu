// Segmented attention around cuDNN's kernels.
//   T queries   H query heads   K KV heads   C head size   S keys of a segment
//   Q queries that cuDNN is given
//
// If Q is more than T (attention_lengths.h), cuDNN gets copies of q, out and their gradients that
// are padded with rows of zeros. The log-sum-exp of those rows is so large that their weights are
// zero, and the chunk's keys are padded by as many zeros, which the causal mask hides from the T.
//
// If documents begin within the chunk, only its first queries see keys before it. cuDNN computes
// those segments for all queries, so that shapes do not depend on where documents begin, and the
// other queries' results are ignored; our matrix kernels compute the chunk's own keys. They also
// compute the first keys of a document that began before the chunk, up to where a segment of an
// even length can begin.
#include "ops/cuda/attention_segments.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "device/cuda/check.h"
#include "ops/cuda/attention_cudnn.h"
#include "ops/cuda/attention_lengths.h"
#include "ops/cuda/attention_matrix.h"
#include "ops/cuda/attention_merge.h"
#include "ops/cuda/library_context.h"
#include "ops/cuda/page_runs.h"
#include "ops/cuda/scratch_size.h"
#include "ops/cuda/vector_access.cuh"

namespace longstride::ops::cuda {
namespace {

using longstride::cuda::cuda_stream;

// A call's shapes, scratch and stream.
class Call {
 public:
  Call(Stream& stream, const ConstView& q_THC, const PagesView& kv, const VisitsView& visits,
       std::span<const KeySegment> segments, float scale, const View& scratch)
      : stream_(cuda_stream(stream)),
        cudnn_(libraries_of(stream).attention(stream)),
        kv_(kv),
        visits_(visits),
        segments_(segments),
        scale_(scale),
        T(q_THC.dim(0)),
        H(q_THC.dim(1)),
        C(q_THC.dim(2)),
        Q(libraries_of(stream).query_lengths().of(T)),
        documents(visits.dense.queries < T) {
    float* at = scratch.as<float>();
    const auto take = [&](std::int64_t floats) { return std::exchange(at, at + floats); };
    const std::int64_t most = filled_up(T);
    const auto take_queries = [&] {
      return reinterpret_cast<bf16*>(take(floats_for(most * H * C, DType::kBF16)));
    };
    sum = take(floats_for(T * H * C, DType::kF32));
    partial = take_queries();
    for (bf16*& copy : filled_) copy = take_queries();
    partial_lse = take(floats_for(most * H, DType::kF32));
    staged_ = reinterpret_cast<bf16*>(take(floats_for(segment_elements(), DType::kBF16)));
    gradients = reinterpret_cast<bf16*>(take(floats_for(segment_elements(), DType::kBF16)));
    const std::int64_t floats = matrix_attention_scratch_elements({.tokens = T,
                                                                   .query_heads = H,
                                                                   .kv_heads = kv.kv_heads,
                                                                   .head_size = C,
                                                                   .page_tokens = kv.page_tokens,
                                                                   .compute = q_THC.dtype()});
    own_scratch_ = View(take(floats_for(floats, DType::kF32)), DType::kF32, {floats});
    LS_CHECK(at - scratch.as<float>() <= scratch.elements(), "scratch {}", scratch.elements());
  }

  std::int64_t segment_elements() const {
    return (kSegmentTokens + filled_up(T) + kv_.page_tokens) * kv_.token_stride();
  }
  cudaStream_t handle() const { return stream_.handle(); }
  CudnnAttention& cudnn() const { return cudnn_; }

  // Keys of zeros after the segment's.
  std::int64_t zero_keys(const KeySegment& s) const { return s.last ? Q - T : 0; }
  RunShape shape(const KeySegment& s) const {
    return {.tokens = Q,
            .keys = s.end - s.begin + zero_keys(s),
            .query_heads = H,
            .kv_heads = kv_.kv_heads,
            .head_size = C,
            .kv_stride = kv_.token_stride(),
            .causal = s.last,
            .scale = scale_};
  }
  bool supported(Pass pass) const {
    // If documents begin within the chunk and all keys are one segment, our kernels do it in one
    // call.
    bool good = !documents || !segments_.front().is_all();
    for (const KeySegment& s : segments_) {
      if (is_ours(s)) continue;
      good = good &&
             (s.end + zero_keys(s) - s.begin / kv_.page_tokens * kv_.page_tokens) *
                     kv_.token_stride() <=
                 segment_elements() &&
             cudnn_.supports(shape(s), pass);
    }
    return good;
  }

  // x, or a padded copy of it.
  const bf16* filled(const ConstView& x_THC, std::size_t copy) const {
    if (Q == T) return x_THC.as<bf16>();
    bf16* const to = filled_[copy];
    LS_CUDA(cudaMemcpyAsync(to, x_THC.data(), static_cast<std::size_t>(x_THC.bytes()),
                            cudaMemcpyDeviceToDevice, handle()));
    zero(to + T * H * C, (Q - T) * H * C);
    return to;
  }

  // Whether our kernels compute the segment.
  bool is_ours(const KeySegment& s) const { return s.uneven || (documents && s.last); }
  // Queries that see keys of the segment, and those that have a sum from earlier segments.
  std::int64_t queries_of(const KeySegment& s) const { return s.last ? T : visits_.dense.queries; }
  std::int64_t queries_before(const KeySegment& s) const {
    return s.first ? 0 : visits_.dense.queries;
  }

  // The call of our kernels for such a segment; its results go where cuDNN's go.
  template <class Args>
  Args ours(const Args& all, const KeySegment& s, SegmentVisits& visits) const {
    if (s.uneven)
      visits.build_before(visits_, T, kv_.page_tokens, s.end);
    else
      visits.build_own(visits_, T, kv_.page_tokens);
    Args call = all;
    call.visits = visits.view();
    call.scratch = own_scratch_;
    return call;
  }

  // The segment's keys, contiguous, each followed by its value.
  const bf16* keys(const KeySegment& s) const {
    const std::int64_t P = kv_.page_tokens, first = s.begin / P, end = ceil_div(s.end, P);
    const std::int64_t skipped = s.begin % P * kv_.token_stride();
    const std::int64_t zeros = zero_keys(s) * kv_.token_stride();
    if (zeros == 0 && contiguous(kv_, first, end))
      return reinterpret_cast<const bf16*>(kv_.plane(first, 0)) + skipped;
    const std::int64_t elements = s.end * kv_.token_stride() - first * P * kv_.token_stride();
    gather_pages(stream_, kv_, {kv_.slots + first, static_cast<std::size_t>(end - first)}, elements,
                 staged_);
    zero(staged_ + elements, zeros);
    return staged_ + skipped;
  }
  // Where the segment's key gradients go, within the run that add_gradients adds, which starts with
  // a page.
  bf16* gradients_of(const KeySegment& s) const {
    return gradients + s.begin % kv_.page_tokens * kv_.token_stride();
  }
  void add_gradients(const KeySegment& s, const PagesView& to, std::uint64_t rounding) const {
    const std::int64_t P = kv_.page_tokens, first = s.begin / P, end = ceil_div(s.end, P);
    const std::int64_t skipped = s.begin % P * kv_.token_stride();
    // Keys of the first page before the segment get no gradient.
    zero(gradients, skipped);
    add_to_pages(stream_, to, first, end, (s.end - first * P) * kv_.token_stride(), gradients,
                 rounding);
  }

 private:
  void zero(bf16* at, std::int64_t elements) const {
    if (elements > 0)
      LS_CUDA(cudaMemsetAsync(at, 0, static_cast<std::size_t>(elements) * sizeof(bf16), handle()));
  }

  longstride::cuda::CudaStream& stream_;
  CudnnAttention& cudnn_;
  const PagesView& kv_;
  const VisitsView& visits_;
  std::span<const KeySegment> segments_;
  float scale_;
  std::array<bf16*, 3> filled_;
  bf16* staged_;
  View own_scratch_;  // of our kernels

 public:
  const std::int64_t T, H, C, Q;
  const bool documents;      // documents begin within the chunk
  float *sum, *partial_lse;  // of merged results
  bf16 *partial, *gradients;
};

}  // namespace

std::int64_t segmented_attention_scratch_elements(const PagedAttentionShape& s) {
  const std::int64_t most = filled_up(s.tokens), rows = most * s.query_heads,
                     // Staged runs start with a whole page.
      run = (kSegmentTokens + most + s.page_tokens) * 2 * s.kv_heads * s.head_size;
  return floats_for(s.tokens * s.query_heads * s.head_size, DType::kF32) +
         4 * floats_for(rows * s.head_size, DType::kBF16) + floats_for(rows, DType::kF32) +
         2 * floats_for(run, DType::kBF16) +
         floats_for(matrix_attention_scratch_elements(s), DType::kF32);
}

void reserve_segmented_attention(Stream& stream, const PagedAttentionReserve& a) {
  CudnnAttention& cudnn = libraries_of(stream).attention(stream);
  const PagedAttentionShape& s = a.shape;
  libraries_of(stream).query_lengths().expect(s.tokens, a.keys % s.tokens);
  const auto reserve = [&](std::int64_t keys, bool causal, Pass pass) {
    if (keys > 0)
      cudnn.supports({.tokens = s.tokens,
                      .keys = keys,
                      .query_heads = s.query_heads,
                      .kv_heads = s.kv_heads,
                      .head_size = s.head_size,
                      .kv_stride = 2 * s.kv_heads * s.head_size,
                      .causal = causal,
                      .scale = a.scale},
                     pass);
  };
  const Pass backward = a.exact ? Pass::kExactBackward : Pass::kFastBackward;
  const std::int64_t past = std::max<std::int64_t>(a.keys - s.tokens, 0);
  reserve(std::min(past, segment_cut(false, a.exact).tokens), false, Pass::kForward);
  reserve(std::min(past, segment_cut(true, a.exact).tokens), false, backward);
  reserve(s.tokens, true, Pass::kForward);
  reserve(s.tokens, true, backward);
}

bool segmented_attention_forward(Stream& stream, const PagedAttentionForward& a) {
  const Call call(stream, a.q_THC, a.kv, a.visits, a.segments, a.scale, a.scratch);
  if (!call.supported(Pass::kForward)) return false;
  const auto merge = [&](const KeySegment& s) {
    merge_attention(stream, {.partial_THC = call.partial,
                             .partial_lse_HT = call.partial_lse,
                             .sum_THC = call.sum,
                             .lse_HT = a.lse_HT.as<float>(),
                             .out_THC = s.last ? a.out_THC.as<bf16>() : nullptr,
                             .tokens = call.T,
                             .heads = call.H,
                             .head_size = call.C,
                             .queries = call.queries_of(s),
                             .queries_before = call.queries_before(s),
                             .partial_tokens = call.is_ours(s) ? call.T : call.Q});
  };
  const bool whole = call.Q == call.T;
  const bf16* q = call.filled(a.q_THC, 0);
  for (const KeySegment& s : a.segments) {
    if (call.is_ours(s)) {
      PagedAttentionForward ours = call.ours(a, s, libraries_of(stream).segment_visits());
      ours.out_THC = View(call.partial, DType::kBF16, a.out_THC.shape());
      ours.lse_HT = View(call.partial_lse, DType::kF32, a.lse_HT.shape());
      matrix_attention_forward(stream, ours);
      merge(s);
      continue;
    }
    const bf16* k = call.keys(s);
    const bool single = whole && s.is_all();
    call.cudnn().forward(call.shape(s), {.q = q,
                                         .k = k,
                                         .v = k + a.kv.row_elements(),
                                         .out = single ? a.out_THC.data() : call.partial,
                                         .lse = single ? a.lse_HT.as<float>() : call.partial_lse});
    if (!single) merge(s);
  }
  return true;
}

bool segmented_attention_backward(Stream& stream, const PagedAttentionBackward& a) {
  const Call call(stream, a.q_THC, a.kv, a.visits, a.segments, a.scale, a.scratch);
  const Pass pass = a.exact ? Pass::kExactBackward : Pass::kFastBackward;
  if (!call.supported(pass)) return false;
  const float* lse = a.lse_HT.as<float>();
  const bool whole = call.Q == call.T;
  if (call.documents || !whole) {
    hide_queries(stream, {.lse_HT = lse,
                          .to_HQ = call.partial_lse,
                          .tokens = call.T,
                          .to_tokens = call.Q,
                          .heads = call.H,
                          .queries = a.visits.dense.queries});
    lse = call.partial_lse;
  }
  const bf16 *q = call.filled(a.q_THC, 0), *out = call.filled(a.out_THC, 1),
             *dout = call.filled(a.dout_THC, 2);
  const auto add = [&](const KeySegment& s) {
    const std::int64_t row = call.H * call.C;
    add_dq(stream, {.partial = call.partial,
                    .sum = call.sum,
                    .out = s.last ? a.dq_THC.as<bf16>() : nullptr,
                    .elements = call.queries_of(s) * row,
                    .elements_before = call.queries_before(s) * row});
  };
  for (const KeySegment& s : a.segments) {
    if (call.is_ours(s)) {
      PagedAttentionBackward ours = call.ours(a, s, libraries_of(stream).segment_visits());
      ours.dq_THC = View(call.partial, DType::kBF16, a.dq_THC.shape());
      matrix_attention_backward(stream, ours);
      add(s);
      continue;
    }
    const bf16* k = call.keys(s);
    bf16* dk = call.gradients_of(s);
    const bool single = whole && s.is_all();
    call.cudnn().backward(call.shape(s),
                          {.q = q,
                           .k = k,
                           .v = k + a.kv.row_elements(),
                           .out = out,
                           .dout = dout,
                           .lse = lse,
                           .dq = single ? a.dq_THC.data() : call.partial,
                           .dk = dk,
                           .dv = dk + a.kv.row_elements()},
                          pass);
    call.add_gradients(s, a.kv_gradient, a.rounding);
    if (!single) add(s);
  }
  return true;
}

}  // namespace longstride::ops::cuda
