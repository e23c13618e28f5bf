// One transformer layer over one chunk: norm, q/k/v, rotation, paged attention, output projection,
// norm, SwiGLU.
//
// The backward pass needs {input, q, attention output and log-sum-exp, mid residual, gate, up}: a
// task states which of them it finds and which it retains (schedule/retention.h). Norms and the
// SwiGLU product are always recomputed; k and v are in the pages.
#pragma once

#include "attention/segments.h"
#include "model/chunk.h"
#include "model/parameters.h"
#include "tensor/pages_view.h"

namespace longstride {

// Activations of a layer, or places for them; some may be absent.
template <class Tensor>
struct LayerTensors {
  Tensor input_TD;
  Tensor q_THC;  // rotated; before norm and rotation if the model normalises q
  Tensor k_TKC;  // before norm and rotation; comes with q, only if the model normalises k
  Tensor attention_THC, lse_HT;
  Tensor mid_TD;  // input + attention part
  Tensor gate_TF, up_TF;
};
using LayerActivations = LayerTensors<Lease>;
using LayerPlaces = LayerTensors<View>;

class PageSelector;

struct LayerPass {
  const ChunkContext& ctx;
  const LayerParameters& weights;
  const Task& task;
  PageStore& pages;
  VisitsView visits;  // not of a sparse layer
  // Places of activations that outlive the episode, and of the next layer's input; absent: in the
  // workspace.
  LayerPlaces places = {};
  View output_place = {};
  std::uint64_t rounding = 0;        // key of this layer and chunk, for the backward pass
  PageSelector* selector = nullptr;  // of sparse layers
  std::uint64_t dropout_key = 0;     // of this layer
  bool drops = false;                // dropout of adapters is on
};

// Stores the chunk's rotated keys and its values into its pages, which must exist. Reads only x.
void layer_store_kv(const LayerPass& pass, ConstView x_TD);

// Computes the activations that the task retains and `held` lacks, and returns the layer's output
// (absent unless the task asks for it). Keys and values must be in the pages. `x` is the layer's
// input, absent if `held` has it. Afterwards `held` has what the task retains; the rest is
// released. Every set of retained activations gives the same bits.
Lease layer_forward(const LayerPass& pass, Lease x_TD, LayerActivations& held);

// Turns dx from the gradient of the layer's output into that of its input, in place. Parameter
// gradients +=; gradient pages += for every visited page, after which the chunk's own are complete.
// Consumes `held`, which must have all activations.
void layer_backward(const LayerPass& pass, const LayerParameters& gradients, LayerActivations held,
                    View dx_TD);

}  // namespace longstride
