// Results over parts of the keys become those over all of them.
//   T queries   H query heads   C head size
#pragma once

#include <cstdint>

#include "device/device.h"
#include "tensor/dtype.h"

namespace longstride::ops::cuda {

// The first `queries` of T: the partial result joins the sum by their log-sum-exps. Queries from
// queries_before on have no sum yet.
struct MergeAttention {
  const bf16* partial_THC = nullptr;
  const float* partial_lse_HT = nullptr;
  float *sum_THC = nullptr, *lse_HT = nullptr;  // of what came before; = with the partial result
  bf16* out_THC = nullptr;  // after the last part: gets the result instead of the sum
  std::int64_t tokens = 0, heads = 0, head_size = 0, queries = 0, queries_before = 0;
};
void merge_attention(Stream& stream, const MergeAttention& args);

// sum += partial; elements from elements_before on have no sum yet.
struct AddDq {
  const bf16* partial = nullptr;
  float* sum = nullptr;
  bf16* out = nullptr;  // after the last part: gets the result instead of the sum
  std::int64_t elements = 0, elements_before = 0;
};
void add_dq(Stream& stream, const AddDq& args);

// to = lse, but so large for queries from `queries` on that all their weights are zero.
void hide_queries(Stream& stream, const float* lse_HT, std::int64_t tokens, std::int64_t heads,
                  std::int64_t queries, float* to_HT);

}  // namespace longstride::ops::cuda
