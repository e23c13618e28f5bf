#include "ops/swap_axes.h"

#include <cstring>

#include "base/thread_pool.h"

namespace longstride::ops::cpu {

void swap_axes(Stream&, const SwapAxes& args) {
  const std::int64_t A = args.x_ABC.dim(0), B = args.x_ABC.dim(1),
                     row = args.x_ABC.dim(2) * size_of(args.x_ABC.dtype());
  const auto* x = static_cast<const std::byte*>(args.x_ABC.data());
  auto* y = static_cast<std::byte*>(args.y_BAC.data());
  parallel_for(A, [&](std::int64_t a) {
    for (std::int64_t b = 0; b < B; ++b)
      std::memcpy(y + (b * A + a) * row, x + (a * B + b) * row, static_cast<std::size_t>(row));
  });
}

}  // namespace longstride::ops::cpu
