// Linked instead of cuda/ in builds without CUDA.
#include "base/error.h"
#include "ops/adapter.h"
#include "ops/elementwise.h"
#include "ops/embedding.h"
#include "ops/kernel_choices.h"
#include "ops/kernel_libraries.h"
#include "ops/linear.h"
#include "ops/loss_head.h"
#include "ops/optimizer.h"
#include "ops/page_codes.h"
#include "ops/page_selection.h"
#include "ops/paged_attention.h"
#include "ops/quantize.h"
#include "ops/rms_norm.h"
#include "ops/rope.h"
#include "ops/swap_axes.h"
#include "ops/swiglu.h"

namespace longstride::ops::cuda {

#define LS_NO_CUDA(name, Args)                                           \
  void name(Stream&, const Args&) {                                      \
    throw Error("this build has no CUDA (" #name ")",                    \
                "run with --device cpu, or build longstride with CUDA"); \
  }

LS_NO_CUDA(add, Add)
LS_NO_CUDA(convert, Convert)
LS_NO_CUDA(zero, Zero)
LS_NO_CUDA(embedding_forward, EmbeddingForward)
LS_NO_CUDA(embedding_backward, EmbeddingBackward)
LS_NO_CUDA(linear_forward, LinearForward)
LS_NO_CUDA(linear_backward, LinearBackward)
LS_NO_CUDA(loss_head, LossHead)
LS_NO_CUDA(sum_of_squares, SumOfSquares)
LS_NO_CUDA(adamw, AdamW)
LS_NO_CUDA(paged_attention_reserve, PagedAttentionReserve)
LS_NO_CUDA(paged_attention_forward, PagedAttentionForward)
LS_NO_CUDA(paged_attention_backward, PagedAttentionBackward)
LS_NO_CUDA(widen_pages, WidenPages)
LS_NO_CUDA(narrow_pages, NarrowPages)
LS_NO_CUDA(add_to_coded_pages, AddToCodedPages)
LS_NO_CUDA(summarize_pages, SummarizePages)
LS_NO_CUDA(page_scores, PageScores)
LS_NO_CUDA(choose_pages, ChoosePages)
LS_NO_CUDA(quantize_weight, QuantizeWeight)
LS_NO_CUDA(widen_weight, WidenWeight)
LS_NO_CUDA(rms_norm_forward, RmsNormForward)
LS_NO_CUDA(rms_norm_backward, RmsNormBackward)
LS_NO_CUDA(rope_tables, RopeTables)
LS_NO_CUDA(rope, Rope)
LS_NO_CUDA(append_kv, AppendKv)
LS_NO_CUDA(take_kv_gradient, TakeKvGradient)
LS_NO_CUDA(swap_axes, SwapAxes)
LS_NO_CUDA(swiglu_forward, SwigluForward)
LS_NO_CUDA(swiglu_backward, SwigluBackward)
LS_NO_CUDA(dropout_forward, DropoutForward)
LS_NO_CUDA(adapter_forward, AdapterForward)
LS_NO_CUDA(adapter_backward, AdapterBackward)
LS_NO_CUDA(adapter_gradient, AdapterGradient)
LS_NO_CUDA(place_columns, PlaceColumns)

#define LS_NO_CUDA_SIZE(name, Shape)                                     \
  std::int64_t name(const Shape&) {                                      \
    throw Error("this build has no CUDA (" #name ")",                    \
                "run with --device cpu, or build longstride with CUDA"); \
  }

LS_NO_CUDA_SIZE(linear_scratch_elements, LinearShape)
LS_NO_CUDA_SIZE(loss_head_scratch_elements, LossHeadShape)
LS_NO_CUDA_SIZE(page_scores_scratch_elements, PageScoresShape)
LS_NO_CUDA_SIZE(loss_head_block_rows, std::int64_t)
LS_NO_CUDA_SIZE(paged_attention_scratch_elements, PagedAttentionShape)
LS_NO_CUDA_SIZE(paged_attention_reserved_bytes, PagedAttentionReserve)
LS_NO_CUDA_SIZE(rms_norm_backward_scratch_elements, RmsNormShape)

KeyCut paged_attention_cut(const PagedAttentionPass&) { return {}; }

std::string kernel_libraries() { return "none"; }

// Never called: there is no CUDA stream in this build.
void use_kernel_choices(Stream&, const KernelChoices&) {}
void begin_choosing_kernels(Stream&) {}
void end_choosing_kernels(Stream&) {}
KernelChoices kernels_met(Stream&) { return {}; }

#undef LS_NO_CUDA
#undef LS_NO_CUDA_SIZE

}  // namespace longstride::ops::cuda
