// Attention of a chunk's queries over paged keys and values.
// H query heads share K key/value heads: head h reads KV head h / (H / K).
//
// Visit lists (tensor/pages_view.h) describe every kind of attention: which pages a query page
// visits, and the first key that each query sees. Accumulation follows the order of the lists, so
// the bits do not depend on threads or on the pages' slots.
//
// A call computes the given segments of the keys (tensor/key_segments.h), in order, and cuts
// nothing itself. Several calls with consecutive segments give the bits of one call for all of
// them, if outputs and scratch stay untouched in between. Pages of other segments need not be on
// the device.
//
// Coded pages (`codes`) are read from there, and their gradients added there as add_to_coded_pages
// does (ops/page_codes.h), once per call; `kv` and `kv_gradient` have space for wide copies of them
// in consecutive slots, whose content is undefined before and after. So a backend may leave these
// copies out. Other pages' gradients are added to `kv_gradient` as ever.
#pragma once

#include "ops/dispatch.h"
#include "tensor/key_segments.h"
#include "tensor/pages_view.h"
#include "tensor/view.h"

namespace longstride::ops {

struct PagedAttentionForward {
  ConstView q_THC;  // rotated
  PagesView kv;
  VisitsView visits;
  View out_THC;  // =
  View lse_HT;   // =, F32: log of the sum of exp(scale * q.k) over visible keys
  float scale = 1.0f;
  View scratch;       // F32, paged_attention_scratch_elements
  bool exact = true;  // the same bits every time; else the backward pass may be faster but vary
  std::span<const KeySegment> segments = {};  // at least one
  CodedView codes = {};                       // its gradients are not read
};
LS_OP(paged_attention_forward, PagedAttentionForward)

struct PagedAttentionBackward {
  ConstView q_THC, out_THC, lse_HT, dout_THC;
  PagesView kv;
  // += for every visited page, once; the caller zeroes pages when it creates them. The sum of a
  // call is F32. Pages are F32 or BF16; into BF16 pages, sums are rounded stochastically.
  PagesView kv_gradient;
  VisitsView visits;
  View dq_THC;  // =
  float scale = 1.0f;
  View scratch;                               // F32, paged_attention_scratch_elements
  bool exact = true;                          // as in the forward pass
  std::span<const KeySegment> segments = {};  // at least one
  // The key of stochastic rounding into BF16 and coded pages (tensor/stochastic_round.h), one per
  // chunk that writes, not per segment. The key, the token and the element in its row determine the
  // random bits.
  std::uint64_t rounding = 0;
  CodedView codes = {};
};
LS_OP(paged_attention_backward, PagedAttentionBackward)

struct PagedAttentionShape {
  std::int64_t tokens = 0, query_heads = 0, kv_heads = 0, head_size = 0, page_tokens = 0;
  DType compute = DType::kF32;  // of q
  // Sparse layers: the most pages before the chunk that a query page visits, and the most that a
  // chunk's query pages visit in all. 0: there is no such layer.
  std::int64_t selected_pages = 0, union_pages = 0;
};

// How the keys of dense attention are cut (cut_keys) on a kind of device.
struct PagedAttentionPass {
  PagedAttentionShape shape;
  bool backward = false, exact = true;
  bool elsewhere = false;  // on another machine, whose libraries are taken to be complete
};
namespace cpu {
KeyCut paged_attention_cut(const PagedAttentionPass& pass);
}
namespace cuda {
KeyCut paged_attention_cut(const PagedAttentionPass& pass);
}
inline KeyCut paged_attention_cut(DeviceKind runs_on, const PagedAttentionPass& pass) {
  return runs_on == DeviceKind::kCuda ? cuda::paged_attention_cut(pass)
                                      : cpu::paged_attention_cut(pass);
}

// Allocates, before the first step, what a device's libraries need for calls of up to `keys` keys,
// the chunk's own included. `shape.tokens` is that of a full chunk.
struct PagedAttentionReserve {
  PagedAttentionShape shape;
  std::int64_t keys = 0;
  float scale = 1.0f;
  bool exact = true;
};
LS_OP(paged_attention_reserve, PagedAttentionReserve)
// About what that takes, where it is much. Asks no library: for plans of a device that is not
// there.
LS_SIZE(paged_attention_reserved_bytes, PagedAttentionReserve)

// The scratch of either pass (depends on the number of threads, which changes no result).
LS_SIZE(paged_attention_scratch_elements, PagedAttentionShape)

}  // namespace longstride::ops
