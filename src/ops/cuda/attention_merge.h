// Merges attention results over segments of the keys into those over all keys.
//   T queries   H query heads   C head size
#pragma once

#include <cstdint>

#include "device/device.h"
#include "tensor/dtype.h"

namespace longstride::ops::cuda {

// Merges the partial result of the first `queries` of T queries into the sum by their log-sum-exps.
// Queries from queries_before on have no sum yet.
struct MergeAttention {
  const bf16* partial_THC = nullptr;
  const float* partial_lse_HT = nullptr;        // rows are partial_tokens long
  float *sum_THC = nullptr, *lse_HT = nullptr;  // of earlier segments; updated
  bf16* out_THC = nullptr;  // set for the last segment: gets the result instead of the sum
  std::int64_t tokens = 0, heads = 0, head_size = 0, queries = 0, queries_before = 0;
  std::int64_t partial_tokens = 0;
};
void merge_attention(Stream& stream, const MergeAttention& args);

// sum += partial; elements from elements_before on have no sum yet.
struct AddDq {
  const bf16* partial = nullptr;
  float* sum = nullptr;
  bf16* out = nullptr;  // set for the last segment: gets the result instead of the sum
  std::int64_t elements = 0, elements_before = 0;
};
void add_dq(Stream& stream, const AddDq& args);

// to = lse, but for queries from `queries` on a value so large that all their weights are zero.
// Rows of `to` may be longer than those of lse.
struct HideQueries {
  const float* lse_HT = nullptr;
  float* to_HQ = nullptr;
  std::int64_t tokens = 0, to_tokens = 0, heads = 0, queries = 0;
};
void hide_queries(Stream& stream, const HideQueries& args);

}  // namespace longstride::ops::cuda
