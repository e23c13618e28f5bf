// One transformer layer over one chunk: norm, q/k/v, rotation, paged attention, output projection,
// norm, SwiGLU.
//
// What the backward pass needs and cannot cheaply rebuild is kept: {input, q, attention output and
// log-sum-exp, mid residual, gate, up}. Norms and the SwiGLU product are rebuilt; k and v are in
// the pages.
#pragma once

#include "attention/parts.h"
#include "model/chunk.h"
#include "model/parameters.h"
#include "tensor/pages_view.h"

namespace longstride {

struct KeptLayer {
  Lease input_TD;
  Lease q_THC;  // rotated; before norm and rotation where the model normalises q
  Lease k_TKC;  // before norm and rotation; only where the model normalises k
  Lease attention_THC, lse_HT;
  Lease mid_TD;          // input + attention part
  Lease gate_TF, up_TF;  // absent where the context says to rebuild them
};

struct LayerPass {
  const ChunkContext& ctx;
  const LayerParameters& weights;
  PagesView kv;
  VisitsView visits;
  PageSource pages = {};
  std::uint64_t rounding = 0;  // key of this layer and chunk, for the backward pass
};

// Stores the chunk's rotated keys and its values into its pages, which exist. Reads x only.
void layer_store_kv(const LayerPass& pass, ConstView x_TD);

// The layer's output for input x, whose keys and values are in the pages already. With `kept`, what
// the backward needs moves there (x too); without, x is given back. Both ways give the same bits.
Lease layer_forward(const LayerPass& pass, Lease x_TD, KeptLayer* kept);

// Turns dx from the gradient of the layer's output into that of its input, in place. Parameter
// gradients +=; gradient pages += for every visited page, after which the chunk's own are complete.
// Uses up `kept`.
void layer_backward(const LayerPass& pass, const LayerParameters& gradients, PagesView kv_gradient,
                    KeptLayer kept, View dx_TD);

}  // namespace longstride
