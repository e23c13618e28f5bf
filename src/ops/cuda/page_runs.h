// Pages in BF16 copied into one contiguous run of keys and values, and runs of gradients added to
// pages.
#pragma once

#include <cstdint>
#include <span>

#include "device/cuda/cuda_stream.h"
#include "tensor/dtype.h"
#include "tensor/pages_view.h"

namespace longstride::ops::cuda {

// Whether logical pages [first, end) are in consecutive slots: a run by themselves.
bool contiguous(const PagesView& pages, std::int64_t first, std::int64_t end);

// run = the pages in `slots`, one after another, of which the last is cut where the run has
// `elements`.
void gather_pages(longstride::cuda::CudaStream& stream, const PagesView& pages,
                  std::span<const std::int32_t> slots, std::int64_t elements, bf16* run);

// Logical pages [first, end) of F32 or BF16 += run of `elements`, with stochastic rounding by the
// key `rounding` into BF16.
void add_to_pages(longstride::cuda::CudaStream& stream, const PagesView& pages, std::int64_t first,
                  std::int64_t end, std::int64_t elements, const bf16* run, std::uint64_t rounding);

}  // namespace longstride::ops::cuda
