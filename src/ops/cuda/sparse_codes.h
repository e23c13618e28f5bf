// Selected pages in 8 bits: copied for attention as wide ones, and gradients of the copies added to
// the codes. Sparse attention reads and writes codes by these alone.
#pragma once

#include <cstdint>
#include <span>

#include "device/cuda/cuda_stream.h"
#include "ops/cuda/sparse_gradients.h"
#include "tensor/pages_view.h"

namespace longstride::ops::cuda {

// Whether the functions below take these pages: rows of whole 16-byte accesses, aligned.
bool fits_sparse_codes(const PagesView& codes);

// run = the pages in `slots`, widened, one after another. All their tokens exist.
void gather_codes(longstride::cuda::CudaStream& stream, const PagesView& codes,
                  std::span<const std::int32_t> slots, bf16* run);

// As add_copies, into coded pages (`to`): the bits of sums in F32 that add_to_coded_pages adds.
// Pages that are not among `coded`, which ascend, are F32 pages of `others`.
void add_copies_to_codes(longstride::cuda::CudaStream& stream, const AddCopies& args,
                         std::span<const std::int32_t> coded, const PagesView& others);

}  // namespace longstride::ops::cuda
