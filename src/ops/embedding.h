// Token embedding: y[t] = scale * table[tokens[t]].
#pragma once

#include "ops/dispatch.h"
#include "tensor/view.h"

namespace longstride::ops {

struct EmbeddingForward {
  ConstView tokens_T;  // I32, each in [0, V)
  ConstView table_VD;  // F32, BF16 or F16
  View y_TD;           // =
  float scale = 1.0f;
};
LS_OP(embedding_forward, EmbeddingForward)

// Rows of one token are added in order, whatever the number of threads.
struct EmbeddingBackward {
  ConstView groups_G4;  // I32: a TokenGroup (tensor/token_rows.h) for each of G different tokens
  ConstView rows_T;     // I32: TokenRows::rows
  ConstView dy_TD;
  View dtable_VD;  // +=, F32; absent: nothing is done
  // The most rows of any token; 0: unknown. A hint to choose the faster kernel, with the same bits.
  std::int64_t longest_group = 0;
  float scale = 1.0f;
};
LS_OP(embedding_backward, EmbeddingBackward)

}  // namespace longstride::ops
