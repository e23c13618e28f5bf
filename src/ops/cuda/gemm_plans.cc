#include "ops/cuda/gemm_plans.h"

#include "base/error.h"
#include "ops/cuda/gemm_choice.h"
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

// A row-major matrix is a transposed column-major one: cuBLASLt sees stored rows x columns as
// columns x rows.
cublasLtMatrixLayout_t layout(DType t, std::int64_t rows, std::int64_t columns, std::int64_t ld) {
  cublasLtMatrixLayout_t made = nullptr;
  LS_BLAS(cublasLtMatrixLayoutCreate(&made, type_of(t), static_cast<std::uint64_t>(columns),
                                     static_cast<std::uint64_t>(rows), ld));
  return made;
}

// Everything but the algorithm.
std::unique_ptr<GemmPlan> make_plan(const GemmShape& s) {
  auto plan = std::make_unique<GemmPlan>();
  // Plain F32: no TF32.
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
  plan->c = layout(s.out, s.m, s.n, s.ldc > 0 ? s.ldc : s.ldd);
  plan->d = layout(s.out, s.m, s.n, s.ldd);
  return plan;
}

// The largest power of two up to 16 that divides `n`.
int alignment_of(std::uint64_t n) {
  return n == 0 ? 16 : static_cast<int>(std::min<std::uint64_t>(16, n & (~n + 1)));
}

}  // namespace

GemmPlan::~GemmPlan() {
  if (d != nullptr) cublasLtMatrixLayoutDestroy(d);
  if (c != nullptr) cublasLtMatrixLayoutDestroy(c);
  if (b != nullptr) cublasLtMatrixLayoutDestroy(b);
  if (a != nullptr) cublasLtMatrixLayoutDestroy(a);
  if (operation != nullptr) cublasLtMatmulDescDestroy(operation);
}

const GemmPlan& GemmPlans::find(Stream& stream, const Gemm& g) {
  if (const std::unique_ptr<GemmPlan>* known = plans_.find(g.shape)) return **known;
  std::unique_ptr<GemmPlan> plan = make_plan(g.shape);
  auto* const blas = libraries_of(stream).blas();
  if (!replay(blas, g, *plan))
    plan->algorithm =
        measuring_
            ? quickest_algorithm(stream, g, *plan)
            : advised_algorithms(blas, g.shape, *plan, LibraryContext::kWorkspaceBytes, 1).front();
  if (measuring_) met_[text_of(g.shape)] = text_of(plan->algorithm);
  if (plans_.full()) plans_.drop_oldest();
  return *plans_.add(g.shape, std::move(plan));
}

bool GemmPlans::replay(cublasLtHandle_t blas, const Gemm& g, GemmPlan& plan) const {
  const auto chosen = choices_.find(text_of(g.shape));
  if (chosen == choices_.end()) return false;
  plan.algorithm = algorithm_of(chosen->second);
  if (takes_algorithm(blas, plan, LibraryContext::kWorkspaceBytes)) return true;
  if (measuring_) return false;
  throw Error(fmt::format("cuBLASLt {} does not take the recorded algorithm for {}",
                          cublasLtGetVersion(), text_of(g.shape)),
              "use the CUDA libraries that the run began with, or begin a new run");
}

void GemmPlans::use(const KernelChoices& choices) {
  for (const auto& [shape, algorithm] : choices) algorithm_of(algorithm);
  choices_ = choices;
  measuring_ = false;
  plans_.clear();
}

void GemmPlans::measure(bool on) {
  measuring_ = on;
  if (on) met_.clear();
  plans_.clear();
}

void multiply(Stream& stream, const Gemm& g, const GemmPlan& plan) {
  if (g.shape.bias) set(plan.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, g.bias);
  const float alpha = g.scale, beta = g.shape.add ? 1.0f : 0.0f;
  const LibraryContext& libraries = libraries_of(stream);
  LS_BLAS(cublasLtMatmul(libraries.blas(), plan.operation, &alpha, g.b, plan.b, g.a, plan.a, &beta,
                         g.shape.add ? g.c : g.d, g.shape.add ? plan.c : plan.d, g.d, plan.d,
                         &plan.algorithm, libraries.workspace(), LibraryContext::kWorkspaceBytes,
                         longstride::cuda::cuda_stream(stream).handle()));
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
  s.alignment =
      alignment_of(address(g.a) | address(g.b) | address(g.c) | address(g.d) | bytes(s.lda, s.in) |
                   bytes(s.ldb, s.in) | bytes(s.ldd, s.out) | bytes(s.ldc, s.out));
  multiply(stream, g, libraries_of(stream).gemms().find(stream, g));
}

}  // namespace longstride::ops::cuda
