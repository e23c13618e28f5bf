//   T queries   H query heads   K KV heads   C head size   P tokens of a page   G = H / K
//   B query pages   n selected pages of each
#include "ops/cuda/attention_sparse.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/error.h"
#include "device/cuda/cuda_stream.h"
#include "ops/cuda/attention_cudnn.h"
#include "ops/cuda/attention_packed.h"
#include "ops/cuda/library_context.h"
#include "ops/cuda/page_runs.h"
#include "ops/cuda/scratch_size.h"
#include "ops/cuda/sparse_codes.h"
#include "ops/cuda/sparse_gradients.h"
#include "tensor/selected_pages.h"

namespace longstride::ops::cuda {
namespace {

// Ranks of the lists that are computed together.
struct RankRange {
  std::int64_t begin = 0, end = 0;
  std::int64_t size() const { return end - begin; }
};

RankRange ranks_from(std::int64_t begin, std::int64_t selected) {
  return {begin, std::min(begin + kRanks, selected)};
}

// What cuDNN is given for a chunk of this shape, with n = shape.selected_pages.
RunShape own_shape(const PagedAttentionShape& s, float scale) {
  return {.tokens = s.tokens,
          .keys = s.tokens,
          .query_heads = s.query_heads,
          .kv_heads = s.kv_heads,
          .head_size = s.head_size,
          .kv_stride = 2 * s.kv_heads * s.head_size,
          .causal = true,
          .scale = scale};
}
RunShape batch_shape(const PagedAttentionShape& s, RankRange ranks, float scale) {
  return {.tokens = s.query_heads / s.kv_heads * s.page_tokens,
          .keys = ranks.size() * s.page_tokens,
          .query_heads = s.kv_heads,
          .kv_heads = s.kv_heads,
          .head_size = s.head_size,
          .kv_stride = 2 * s.kv_heads * s.head_size,
          .causal = false,
          .scale = scale,
          .batch = s.tokens / s.page_tokens,
          .packed = true};
}

// Whether cuDNN supports all that such a chunk needs. Makes the plans.
bool supported(CudnnAttention& cudnn, const PagedAttentionShape& s, float scale, Pass pass) {
  bool good = cudnn.supports(own_shape(s, scale), pass);
  for (std::int64_t rank = 0; rank < s.selected_pages && good; rank += kRanks)
    good = cudnn.supports(batch_shape(s, ranks_from(rank, s.selected_pages), scale), pass);
  return good;
}

// The parts of the scratch. Forward and backward passes have the same ones.
struct Parts {
  bf16 *q = nullptr, *out = nullptr, *dout = nullptr;  // packed
  float* lse = nullptr;                                // packed
  bf16* partial = nullptr;                             // packed results of one range of ranks
  bf16 *copies = nullptr, *gradients = nullptr;        // of pages
  float *sum_THC = nullptr, *waiting = nullptr;        // only if there are several ranges
  std::int64_t floats = 0;                             // of all parts

  Parts(const PagedAttentionShape& s, float* scratch) {
    const auto take = [&](std::int64_t elements, DType type) {
      float* const at = scratch == nullptr ? nullptr : scratch + floats;
      floats += floats_for(elements, type);
      return at;
    };
    const auto take_bf16 = [&](std::int64_t elements) {
      return reinterpret_cast<bf16*>(take(elements, DType::kBF16));
    };
    const std::int64_t n = s.selected_pages, rows = n > 0 ? s.tokens * s.query_heads : 0,
                       query_pages = (s.tokens + s.page_tokens - 1) / s.page_tokens,
                       page = s.page_tokens * 2 * s.kv_heads * s.head_size,
                       // The chunk's own pages have their turn before the selected ones.
        copied = query_pages * std::clamp<std::int64_t>(n, 1, kRanks) * page;
    for (bf16** packed : {&q, &out, &dout, &partial}) *packed = take_bf16(rows * s.head_size);
    lse = take(rows, DType::kF32);
    copies = take_bf16(copied);
    gradients = take_bf16(copied);
    if (n <= kRanks) return;
    sum_THC = take(rows * s.head_size, DType::kF32);
    waiting = take(s.union_pages * page, DType::kF32);
  }
};

// The shape of a call with its lists' sizes. selected_pages is negative if the lists are not for
// us.
PagedAttentionShape shape_of(const ConstView& q_THC, const PagesView& kv, const VisitsView& v) {
  const std::int64_t T = q_THC.dim(0), P = kv.page_tokens;
  const SelectedCount count = count_selected(v, P);
  const std::int64_t n = count.most;
  bool good = T % P == 0 && count.least == n;
  for (std::int64_t q = 0; q < v.query_pages && good; ++q) {
    const std::int64_t first_key = n > 0 ? v.kv_pages[v.offsets[q]] * P : v.chunk_begin;
    // Lists ascend, so with so many pages all of the chunk's are there; and the last query of a
    // page sees the least.
    good = v.offsets[q + 1] - v.offsets[q] == n + q + 1 &&
           v.first_visible[(q + 1) * P - 1] <= first_key;
  }
  return {.tokens = T,
          .query_heads = q_THC.dim(1),
          .kv_heads = kv.kv_heads,
          .head_size = kv.head_size,
          .page_tokens = P,
          .compute = q_THC.dtype(),
          .selected_pages = good ? n : -1,
          .union_pages = count.distinct};
}

// A call's shapes, scratch and stream.
class Call {
 public:
  template <class Args>
  Call(Stream& stream, const Args& a)
      : stream_(longstride::cuda::cuda_stream(stream)),
        kv_(a.kv),
        codes_(a.codes),
        visits_(a.visits),
        scale_(a.scale),
        shape_(shape_of(a.q_THC, a.kv, a.visits)),
        cudnn(libraries_of(stream).attention(stream)),
        ranks(libraries_of(stream).selected_ranks()),
        n(shape_.selected_pages),
        at(shape_, a.scratch.template as<float>()) {
    LS_CHECK(n < 0 || at.floats <= a.scratch.elements(),
             "scratch {} for {} selected pages, {} in all", a.scratch.elements(), n,
             shape_.union_pages);
  }

  bool takes(Pass pass) const {
    for (const PagesView& coded : {codes_.kv, codes_.gradients})
      if (coded.base != nullptr && !fits_sparse_codes(coded)) return false;
    return n >= 0 && supported(cudnn, shape_, scale_, pass);
  }
  RunShape own() const { return own_shape(shape_, scale_); }
  RunShape batch(RankRange r) const { return batch_shape(shape_, r, scale_); }
  PackedRows rows() const {
    return {.tokens = shape_.tokens,
            .heads = shape_.query_heads,
            .head_size = shape_.head_size,
            .page_tokens = shape_.page_tokens};
  }

  // The chunk's own keys, contiguous, each followed by its value.
  const bf16* own_keys() const {
    if (contiguous(kv_, first_own(), end_own()))
      return reinterpret_cast<const bf16*>(kv_.plane(first_own(), 0));
    return gathered({kv_.slots + first_own(), static_cast<std::size_t>(visits_.query_pages)});
  }
  // Adds the gradients of own_keys.
  void add_own_gradients(const PagesView& to, std::uint64_t rounding) const {
    add_to_pages(stream_, to, first_own(), end_own(), shape_.tokens * kv_.token_stride(),
                 at.gradients, rounding);
  }

  // The keys of these ranks, [query page][rank][P].
  const bf16* keys(RankRange r) const {
    if (codes_.kv.base == nullptr) return gathered(ranks.slots(visits_, kv_, r.begin, r.end));
    gather_codes(stream_, codes_.kv, ranks.slots(visits_, codes_.kv, r.begin, r.end), at.copies);
    return at.copies;
  }
  // Adds the gradients of these keys: to the codes of pages that have some, else to the pages.
  void add_gradients(RankRange r, const PagesView& to, std::uint64_t rounding) const {
    ranks.build(visits_, kv_.page_tokens, r.begin, r.end);
    AddCopies add{.ranks = ranks,
                  .copies = at.gradients,
                  .to = to,
                  .waiting = at.waiting,
                  .rounding = rounding};
    if (codes_.gradients.base == nullptr) return add_copies(stream_, add);
    add.to = codes_.gradients;
    add_copies_to_codes(stream_, add, codes_.gradient_pages, to);
  }

 private:
  std::int64_t first_own() const { return visits_.chunk_begin / kv_.page_tokens; }
  std::int64_t end_own() const { return first_own() + visits_.query_pages; }
  const bf16* gathered(std::span<const std::int32_t> slots) const {
    gather_pages(stream_, kv_, slots, std::ssize(slots) * kv_.page_tokens * kv_.token_stride(),
                 at.copies);
    return at.copies;
  }

  longstride::cuda::CudaStream& stream_;
  const PagesView& kv_;
  const CodedView& codes_;
  const VisitsView& visits_;
  float scale_;
  PagedAttentionShape shape_;

 public:
  CudnnAttention& cudnn;
  SelectedRanks& ranks;
  const std::int64_t n;
  const Parts at;
};

}  // namespace

std::int64_t sparse_attention_scratch_elements(const PagedAttentionShape& s) {
  return Parts(s, nullptr).floats;
}

void reserve_sparse_attention(Stream& stream, const PagedAttentionReserve& a) {
  if (a.shape.selected_pages == 0 || a.shape.tokens % a.shape.page_tokens != 0) return;
  CudnnAttention& cudnn = libraries_of(stream).attention(stream);
  for (const Pass pass : {Pass::kForward, a.exact ? Pass::kExactBackward : Pass::kFastBackward})
    supported(cudnn, a.shape, a.scale, pass);
}

bool sparse_attention_forward(Stream& stream, const PagedAttentionForward& a) {
  const Call call(stream, a);
  if (!call.takes(Pass::kForward)) return false;
  const std::int64_t to_value = a.kv.row_elements();
  const bf16* own = call.own_keys();
  call.cudnn.forward(call.own(), {.q = a.q_THC.data(),
                                  .k = own,
                                  .v = own + to_value,
                                  .out = a.out_THC.data(),
                                  .lse = a.lse_HT.as<float>()});
  if (call.n == 0) return true;

  pack_rows(stream, call.rows(), a.q_THC.as<bf16>(), call.at.q);
  for (std::int64_t rank = 0; rank < call.n; rank += kRanks) {
    const RankRange r = ranks_from(rank, call.n);
    const bf16* k = call.keys(r);
    call.cudnn.forward(
        call.batch(r),
        {.q = call.at.q, .k = k, .v = k + to_value, .out = call.at.partial, .lse = call.at.lse});
    merge_packed(stream, {.shape = call.rows(),
                          .partial = call.at.partial,
                          .partial_lse = call.at.lse,
                          .sum_THC = call.at.sum_THC,
                          .out_THC = a.out_THC.as<bf16>(),
                          .lse_HT = a.lse_HT.as<float>(),
                          .first = r.begin == 0,
                          .last = r.end == call.n});
  }
  return true;
}

bool sparse_attention_backward(Stream& stream, const PagedAttentionBackward& a) {
  const Call call(stream, a);
  const Pass pass = a.exact ? Pass::kExactBackward : Pass::kFastBackward;
  if (!call.takes(pass)) return false;
  const std::int64_t to_value = a.kv.row_elements();
  bf16* const dk = call.at.gradients;
  const bf16* own = call.own_keys();
  call.cudnn.backward(call.own(),
                      {.q = a.q_THC.data(),
                       .k = own,
                       .v = own + to_value,
                       .out = a.out_THC.data(),
                       .dout = a.dout_THC.data(),
                       .lse = a.lse_HT.as<float>(),
                       .dq = a.dq_THC.data(),
                       .dk = dk,
                       .dv = dk + to_value},
                      pass);
  call.add_own_gradients(a.kv_gradient, a.rounding);
  if (call.n == 0) return true;

  pack_rows(stream, call.rows(), a.q_THC.as<bf16>(), call.at.q);
  pack_rows(stream, call.rows(), a.out_THC.as<bf16>(), call.at.out);
  pack_rows(stream, call.rows(), a.dout_THC.as<bf16>(), call.at.dout);
  pack_statistics(stream, call.rows(), a.lse_HT.as<float>(), call.at.lse);
  for (std::int64_t rank = 0; rank < call.n; rank += kRanks) {
    const RankRange r = ranks_from(rank, call.n);
    const bf16* k = call.keys(r);
    call.cudnn.backward(call.batch(r),
                        {.q = call.at.q,
                         .k = k,
                         .v = k + to_value,
                         .out = call.at.out,
                         .dout = call.at.dout,
                         .lse = call.at.lse,
                         .dq = call.at.partial,
                         .dk = dk,
                         .dv = dk + to_value},
                        pass);
    call.add_gradients(r, a.kv_gradient, a.rounding);
    add_packed_dq(stream, {.shape = call.rows(),
                           .partial = call.at.partial,
                           .sum_THC = call.at.sum_THC,
                           .dq_THC = a.dq_THC.as<bf16>(),
                           .first = r.begin == 0,
                           .last = r.end == call.n});
  }
  return true;
}

}  // namespace longstride::ops::cuda
