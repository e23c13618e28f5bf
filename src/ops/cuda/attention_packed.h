// Rows of a chunk's queries packed for a batch of attention problems, one per query page, in which
// the heads of a group are rows over the same keys: [query page][H][P][C], which is
// [query page][K][G * P][C]. Statistics of rows are [query page][H][P].
//   T queries, a multiple of P   H query heads   C head size   P tokens of a page
#pragma once

#include <cstdint>

#include "device/device.h"
#include "tensor/dtype.h"

namespace longstride::ops::cuda {

struct PackedRows {
  std::int64_t tokens = 0, heads = 0, head_size = 0, page_tokens = 0;

  constexpr std::int64_t rows() const { return tokens * heads; }
  constexpr std::int64_t elements() const { return rows() * head_size; }
};

void pack_rows(Stream& stream, const PackedRows& shape, const bf16* x_THC, bf16* packed);
void pack_statistics(Stream& stream, const PackedRows& shape, const float* x_HT, float* packed);

// Merges a packed partial result into that of earlier keys by their log-sum-exps. Results over all
// keys so far are in out if this partial result is the first to be merged, else in sum; they go to
// out with the last one, else to sum.
struct MergePacked {
  PackedRows shape;
  const bf16* partial = nullptr;
  const float* partial_lse = nullptr;
  float* sum_THC = nullptr;  // unused if there is one partial result
  bf16* out_THC = nullptr;
  float* lse_HT = nullptr;
  bool first = true, last = true;
};
void merge_packed(Stream& stream, const MergePacked& args);

// The same for dq, where results are added.
struct AddPackedDq {
  PackedRows shape;
  const bf16* partial = nullptr;
  float* sum_THC = nullptr;
  bf16* dq_THC = nullptr;
  bool first = true, last = true;
};
void add_packed_dq(Stream& stream, const AddPackedDq& args);

}  // namespace longstride::ops::cuda
