// Gradients of copies of selected pages, added to the pages they were copied from.
#pragma once

#include <cstdint>

#include "device/cuda/cuda_stream.h"
#include "tensor/dtype.h"
#include "tensor/pages_view.h"
#include "tensor/selected_pages.h"

namespace longstride::ops::cuda {

// The copies of a page are added up in F32 in the order of their places, and the sum of a page
// whose visits all came by is added to the page at once. Sums of other pages wait in `waiting` for
// the next call.
struct AddCopies {
  SelectedRanks& ranks;          // built
  const bf16* copies = nullptr;  // gradients, laid out as pages are
  PagesView to;                  // F32 or BF16, += (sparse_codes.h: coded)
  float* waiting = nullptr;      // [distinct page][P][2][K][C]; unused if all ranks are in one call
  std::uint64_t rounding = 0;    // the key of stochastic rounding into BF16
};
void add_copies(longstride::cuda::CudaStream& stream, const AddCopies& args);

}  // namespace longstride::ops::cuda
