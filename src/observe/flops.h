// Model FLOPs: the arithmetic that training on given documents requires, not what a run executes.
//
//   per token             6 x parameters that enter matrix products (2 forward, 4 backward)
//   per query and key     3 x 4 x query heads x head size, in each layer (scores and values; once
//                         forward, twice backward)
// Only keys that a query attends to count: causality, windows and document boundaries are exact. In
// sparse layers every document counts as if it began with a chunk.
// Recomputation, norms, the embedding lookup, softmax and the optimizer are not counted.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace longstride {

// Sparse layers: a query attends to its chunk and to up to `budget` earlier pages.
struct SparseFlops {
  std::vector<std::int64_t> budgets = {};  // per layer; negative: not sparse. Empty: none is
  std::int64_t chunk_tokens = 1, page_tokens = 1;
};

struct FlopShape {
  std::int64_t matrix_parameters =
      0;  // projections and loss head (even if tied), not the embedding
  std::int64_t layers = 0;
  std::int64_t query_heads = 0;
  std::int64_t head_size = 0;
  std::vector<std::int64_t> windows =
      {};  // per layer: tokens a query attends to, itself included; 0: all. Empty: all 0
  SparseFlops sparse = {};
};

// Number of (query, key) pairs of a document in which the query attends to the key.
double visible_keys(std::int64_t length, std::int64_t window);
double visible_keys(std::int64_t length, const SparseFlops& sparse, std::int64_t budget);

double model_flops(const FlopShape& shape, std::span<const std::int64_t> document_lengths);

// Peak rate of a device of this name in dense bf16 products, by its data sheet; absent if unknown.
std::optional<double> peak_flops_per_s(std::string_view device_name);

}  // namespace longstride
