// Token embedding: y[t] = table[tokens[t]].
#pragma once

#include "base/error.h"
#include "ops/dispatch.h"
#include "tensor/view.h"

namespace longstride::ops {

struct EmbeddingForward {
  ConstView tokens_T;  // I32, each in [0, V)
  ConstView table_VD;  // F32, BF16 or F16
  View y_TD;           // =
};
LS_OP(embedding_forward, EmbeddingForward)

// Rows of one token are added in order, whatever the number of threads.
struct EmbeddingBackward {
  ConstView groups_G4;  // I32: a TokenGroup (tensor/token_rows.h) for each of G different tokens
  ConstView rows_T;     // I32: TokenRows::rows
  ConstView dy_TD;
  View dtable_VD;  // +=, F32; absent: nothing is done
  // Rows of the token that has most; 0: not known. A hint to choose the quicker way: the bits are
  // the same.
  std::int64_t longest_group = 0;
};
LS_OP(embedding_backward, EmbeddingBackward)

// For every backend: that the shapes belong together.
inline void check_shapes(const EmbeddingBackward& a) {
  const std::int64_t T = a.dy_TD.dim(0), G = a.groups_G4.dim(0);
  if (!a.dtable_VD.present()) return;
  LS_CHECK(a.dtable_VD.shape().rank() == 2 && a.groups_G4.shape() == Shape({G, 4}) &&
               a.rows_T.shape() == Shape({T}) && a.dy_TD.shape() == Shape({T, a.dtable_VD.dim(1)}),
           "groups {} rows {} of {} table {}", a.groups_G4.shape().to_string(),
           a.rows_T.shape().to_string(), a.dy_TD.shape().to_string(),
           a.dtable_VD.shape().to_string());
}

}  // namespace longstride::ops
