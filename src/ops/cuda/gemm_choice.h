// Choosing a cuBLASLt algorithm for a product, and writing the choice as text.
#pragma once

#include <cublasLt.h>

#include <string>
#include <vector>

#include "ops/cuda/gemm_plans.h"

namespace longstride::ops::cuda {

// The algorithms that cuBLASLt's heuristic advises for the plan's product, best first. At least
// one.
std::vector<cublasLtMatmulAlgo_t> advised_algorithms(cublasLtHandle_t blas, const GemmShape& shape,
                                                     const GemmPlan& plan,
                                                     std::int64_t workspace_bytes, int most);

// The fastest of the advised ones, timed on the operands of `g`. Overwrites the output and waits
// for the device.
cublasLtMatmulAlgo_t quickest_algorithm(Stream& stream, const Gemm& g, GemmPlan& plan);

// All fields of a shape: "m4096 n3584 k18944 B^T bf16 to bf16 ld ..." and so on.
std::string text_of(const GemmShape& shape);
std::string text_of(const cublasLtMatmulAlgo_t& algorithm);
// Throws Error if the text cannot be parsed.
cublasLtMatmulAlgo_t algorithm_of(const std::string& text);
// Whether this version of cuBLASLt accepts the plan's algorithm for its product.
bool takes_algorithm(cublasLtHandle_t blas, const GemmPlan& plan, std::int64_t workspace_bytes);

}  // namespace longstride::ops::cuda
