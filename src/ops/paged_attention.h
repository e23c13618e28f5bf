// Attention of a chunk's queries over paged keys and values.
// H query heads share K key/value heads: head h reads KV head h / (H / K).
//
// Every kind of attention is a visit list (tensor/pages_view.h): which pages a query page visits,
// and from which key on each query sees. Accumulation follows the order of the lists, so the bits
// do not depend on threads or on where pages lie.
//
// A call computes the segments of the keys that it is given (tensor/key_segments.h), in their
// order, and cuts nothing itself. Several calls with consecutive segments, outputs and scratch left
// alone in between, give the bits of one call for all of them. Pages of other segments need not be
// on the device.
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
  View scratch;  // F32, paged_attention_scratch_elements
  bool exact =
      true;  // the same bits every time; else the backward pass may be faster and not repeat
  std::span<const KeySegment> segments = {};  // at least one
};
LS_OP(paged_attention_forward, PagedAttentionForward)

struct PagedAttentionBackward {
  ConstView q_THC, out_THC, lse_HT, dout_THC;
  PagesView kv;
  // += for every visited page, once; pages exist (zeroed at first touch by the caller). The sum of
  // a call is F32. Pages are F32, or BF16: then what is stored is rounded stochastically.
  PagesView kv_gradient;
  VisitsView visits;
  View dq_THC;  // =
  float scale = 1.0f;
  View scratch;                               // F32, paged_attention_scratch_elements
  bool exact = true;                          // as in the forward pass
  std::span<const KeySegment> segments = {};  // at least one
  // The key of the rounding into BF16 pages (tensor/stochastic_round.h): of the chunk that writes,
  // not of the segment. With it, the token and the element in its row decide the random bits.
  std::uint64_t rounding = 0;
};
LS_OP(paged_attention_backward, PagedAttentionBackward)

struct PagedAttentionShape {
  std::int64_t tokens = 0, query_heads = 0, kv_heads = 0, head_size = 0, page_tokens = 0;
  DType compute = DType::kF32;  // of q
};

// How dense attention is to be cut (cut_keys) for a device of that kind.
struct PagedAttentionPass {
  PagedAttentionShape shape;
  bool backward = false, exact = true;
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

// What a device's libraries need for calls of up to `keys` keys, the chunk's own included, is taken
// before the first step. `shape.tokens` are those of a full chunk.
struct PagedAttentionReserve {
  PagedAttentionShape shape;
  std::int64_t keys = 0;
  float scale = 1.0f;
  bool exact = true;
};
LS_OP(paged_attention_reserve, PagedAttentionReserve)

// Scratch that either pass needs (depends on the number of threads, which changes no result).
LS_SIZE(paged_attention_scratch_elements, PagedAttentionShape)

}  // namespace longstride::ops
