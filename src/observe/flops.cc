#include "observe/flops.h"

#include <algorithm>

#include "base/error.h"

namespace longstride {

double visible_keys(std::int64_t length, std::int64_t window) {
  const std::int64_t reach = window > 0 ? std::min(window, length) : length;
  // The first `reach` queries attend to 1, 2, ... reach keys, the others to `reach` each.
  const auto n = static_cast<double>(length), w = static_cast<double>(reach);
  return w * (w + 1) / 2 + (n - w) * w;
}

double visible_keys(std::int64_t length, const SparseFlops& sparse, std::int64_t budget) {
  double keys = 0;
  for (std::int64_t begin = 0; begin < length; begin += sparse.chunk_tokens) {
    const auto queries = static_cast<double>(std::min(sparse.chunk_tokens, length - begin));
    const std::int64_t pages = std::min(budget, begin / sparse.page_tokens);
    keys += queries * (queries + 1) / 2 + queries * static_cast<double>(pages * sparse.page_tokens);
  }
  return keys;
}

double model_flops(const FlopShape& shape, std::span<const std::int64_t> document_lengths) {
  LS_CHECK(shape.windows.empty() || static_cast<std::int64_t>(shape.windows.size()) == shape.layers,
           "{} windows for {} layers", shape.windows.size(), shape.layers);
  const double per_key =
      3.0 * 4.0 * static_cast<double>(shape.query_heads) * static_cast<double>(shape.head_size);
  double tokens = 0, keys = 0;
  for (const std::int64_t length : document_lengths) {
    tokens += static_cast<double>(length);
    for (std::size_t layer = 0; layer < static_cast<std::size_t>(shape.layers); ++layer) {
      const std::int64_t budget = shape.sparse.budgets.empty() ? -1 : shape.sparse.budgets[layer],
                         window = shape.windows.empty() ? 0 : shape.windows[layer];
      keys +=
          budget >= 0 ? visible_keys(length, shape.sparse, budget) : visible_keys(length, window);
    }
  }
  return 6.0 * static_cast<double>(shape.matrix_parameters) * tokens + per_key * keys;
}

std::optional<double> peak_flops_per_s(std::string_view device_name) {
  const auto says = [&](std::string_view word) {
    return device_name.find(word) != std::string_view::npos;
  };
  // PCIe cards are slower, and a part of a GPU (MIG) has a part of its peak.
  const bool whole = !says("PCIe") && !says("NVL") && !says("MIG");
  if (whole && (says("H100") || says("H200"))) return 989e12;
  return std::nullopt;
}

}  // namespace longstride
