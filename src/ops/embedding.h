// Token embedding: y[t] = table[tokens[t]].
#pragma once

#include "ops/dispatch.h"
#include "tensor/view.h"

namespace longstride::ops {

struct EmbeddingForward {
  ConstView tokens_T;  // I32, each in [0, V)
  ConstView table_VD;  // F32, BF16 or F16
  View y_TD;           // =
};
LS_OP(embedding_forward, EmbeddingForward)

// Rows of one token are added in token order, whatever the number of threads.
struct EmbeddingBackward {
  ConstView tokens_T;
  ConstView dy_TD;
  View dtable_VD;  // +=, F32
};
LS_OP(embedding_backward, EmbeddingBackward)

}  // namespace longstride::ops
