#include "ops/cuda/gemm_plans.h"

#include "base/error.h"
#include "ops/cuda/library_context.h"

namespace longstride::ops::cuda {
namespace {

cudaDataType_t type_of(DType t) {
  switch (t) {
    case DType::kF32:
      return CUDA_R_32F;
    case DType::kBF16:
      return CUDA_R_16BF;
    default:
      LS_CHECK(false, "no products of {}", name_of(t));
      return CUDA_R_32F;
  }
}

template <class T>
void set(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t what, T value) {
  LS_BLAS(cublasLtMatmulDescSetAttribute(operation, what, &value, sizeof(value)));
}

template <class T>
void prefer(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t what,
            T value) {
  LS_BLAS(cublasLtMatmulPreferenceSetAttribute(preference, what, &value, sizeof(value)));
}

// A row-major matrix is a column-major one transposed: of stored rows x columns, cuBLASLt sees
// columns x rows.
cublasLtMatrixLayout_t layout(DType t, std::int64_t rows, std::int64_t columns, std::int64_t ld) {
  cublasLtMatrixLayout_t made = nullptr;
  LS_BLAS(cublasLtMatrixLayoutCreate(&made, type_of(t), static_cast<std::uint64_t>(columns),
                                     static_cast<std::uint64_t>(rows), ld));
  return made;
}

void choose_algorithm(cublasLtHandle_t blas, const GemmShape& s, std::int64_t workspace_bytes,
                      GemmPlan& plan) {
  cublasLtMatmulPreference_t preference = nullptr;
  LS_BLAS(cublasLtMatmulPreferenceCreate(&preference));
  prefer(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
         static_cast<std::uint64_t>(workspace_bytes));
  // Where a product is split along k, its parts are added up in F32 in the workspace: never by
  // turns in the output, which would round them one by one.
  prefer(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
         static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  const auto alignment = static_cast<std::uint32_t>(s.alignment);
  prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment);
  prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment);
  prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment);
  prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment);
  cublasLtMatmulHeuristicResult_t found{};
  int count = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      blas, plan.operation, plan.b, plan.a, plan.d, plan.d, preference, 1, &found, &count);
  cublasLtMatmulPreferenceDestroy(preference);
  LS_CHECK(status == CUBLAS_STATUS_SUCCESS && count == 1,
           "cuBLASLt knows no way for m {} n {} k {}{}{} {} to {}, aligned to {} bytes: {}", s.m,
           s.n, s.k, s.trans_a ? " A^T" : "", s.trans_b ? " B^T" : "", name_of(s.in),
           name_of(s.out), s.alignment, cublasLtGetStatusString(status));
  plan.algorithm = found.algo;
}

// The largest power of two up to 16 that divides `n`.
int alignment_of(std::uint64_t n) {
  return n == 0 ? 16 : static_cast<int>(std::min<std::uint64_t>(16, n & (~n + 1)));
}

}  // namespace

GemmPlan::~GemmPlan() {
  if (d != nullptr) cublasLtMatrixLayoutDestroy(d);
  if (b != nullptr) cublasLtMatrixLayoutDestroy(b);
  if (a != nullptr) cublasLtMatrixLayoutDestroy(a);
  if (operation != nullptr) cublasLtMatmulDescDestroy(operation);
}

const GemmPlan& GemmPlans::find(cublasLtHandle_t blas, const GemmShape& s,
                                std::int64_t workspace_bytes) {
  std::unique_ptr<GemmPlan>& slot = plans_[s];
  if (slot) return *slot;
  auto plan = std::make_unique<GemmPlan>();
  // Plain F32: no TF32 shortcuts.
  LS_BLAS(cublasLtMatmulDescCreate(&plan->operation, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  // cuBLASLt's first operand is our second one.
  set(plan->operation, CUBLASLT_MATMUL_DESC_TRANSA, s.trans_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(plan->operation, CUBLASLT_MATMUL_DESC_TRANSB, s.trans_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (s.bias) {
    set(plan->operation, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(plan->operation, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(s.out));
  }
  plan->a = s.trans_a ? layout(s.in, s.k, s.m, s.lda) : layout(s.in, s.m, s.k, s.lda);
  plan->b = s.trans_b ? layout(s.in, s.n, s.k, s.ldb) : layout(s.in, s.k, s.n, s.ldb);
  plan->d = layout(s.out, s.m, s.n, s.ldd);
  choose_algorithm(blas, s, workspace_bytes, *plan);
  slot = std::move(plan);
  return *slot;
}

void gemm(Stream& stream, Gemm g) {
  GemmShape& s = g.shape;
  if (s.m == 0 || s.n == 0) return;
  LS_CHECK(s.k > 0, "a product over nothing");
  s.bias = g.bias != nullptr;
  s.add = g.c != nullptr;
  const auto address = [](const void* p) { return reinterpret_cast<std::uint64_t>(p); };
  const auto bytes = [](std::int64_t n, DType t) {
    return static_cast<std::uint64_t>(n * size_of(t));
  };
  s.alignment = alignment_of(address(g.a) | address(g.b) | address(g.c) | address(g.d) |
                             bytes(s.lda, s.in) | bytes(s.ldb, s.in) | bytes(s.ldd, s.out));
  LibraryContext& libraries = libraries_of(stream);
  const GemmPlan& plan =
      libraries.gemms().find(libraries.blas(), s, LibraryContext::kWorkspaceBytes);
  if (s.bias) set(plan.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, g.bias);
  const float alpha = 1.0f, beta = s.add ? 1.0f : 0.0f;
  LS_BLAS(cublasLtMatmul(libraries.blas(), plan.operation, &alpha, g.b, plan.b, g.a, plan.a, &beta,
                         s.add ? g.c : g.d, plan.d, g.d, plan.d, &plan.algorithm,
                         libraries.workspace(), LibraryContext::kWorkspaceBytes,
                         longstride::cuda::cuda_stream(stream).handle()));
}

}  // namespace longstride::ops::cuda
