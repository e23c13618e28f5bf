// How an algorithm of cuBLASLt is chosen for a product, and how a choice is written down.
#pragma once

#include <cublasLt.h>

#include <string>
#include <vector>

#include "ops/cuda/gemm_plans.h"

namespace longstride::ops::cuda {

// What cuBLASLt advises for the plan's product, the best first. At least one.
std::vector<cublasLtMatmulAlgo_t> advised_algorithms(cublasLtHandle_t blas, const GemmShape& shape,
                                                     const GemmPlan& plan,
                                                     std::int64_t workspace_bytes, int most);

// The quickest of the advised, timed on the operands of `g`, whose output is overwritten. Waits.
cublasLtMatmulAlgo_t quickest_algorithm(Stream& stream, const Gemm& g, GemmPlan& plan);

// "m4096 n3584 k18944 B^T bf16 to bf16 ld ..." and so on: all that makes a shape.
std::string text_of(const GemmShape& shape);
std::string text_of(const cublasLtMatmulAlgo_t& algorithm);
// Throws Error where the text is none of ours.
cublasLtMatmulAlgo_t algorithm_of(const std::string& text);
// Whether this cuBLASLt takes the plan's algorithm for its product.
bool takes_algorithm(cublasLtHandle_t blas, const GemmPlan& plan, std::int64_t workspace_bytes);

}  // namespace longstride::ops::cuda
