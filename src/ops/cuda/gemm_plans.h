// Matrix products by cuBLASLt, row-major. A plan holds what a product needs besides its pointers;
// it is made on demand, and those used last are kept.
#pragma once

#include <cublasLt.h>

#include <compare>
#include <cstdint>
#include <memory>

#include "base/recent_map.h"
#include "device/device.h"
#include "ops/kernel_choices.h"
#include "tensor/dtype.h"

namespace longstride::ops::cuda {

// Everything that determines how a product is computed. op(A) is [m, k], op(B) [k, n]; a transposed
// operand is stored as [k, m] or [n, k]. Rows of an operand are ld elements apart.
struct GemmShape {
  std::int64_t m = 0, n = 0, k = 0;
  bool trans_a = false, trans_b = false;
  std::int64_t lda = 0, ldb = 0, ldd = 0;
  DType in = DType::kF32;   // of A, B
  DType out = DType::kF32;  // of D, C and the bias
  bool bias = false;        // one value per column of D
  bool add = false;         // D = ... + C
  std::int64_t ldc = 0;     // 0: as ldd
  int alignment = 16;       // bytes that all addresses and row lengths are multiples of

  auto operator<=>(const GemmShape&) const = default;  // NOLINT(modernize-use-nullptr)
};

struct GemmPlan {
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr, d = nullptr;
  cublasLtMatmulAlgo_t algorithm{};

  GemmPlan() = default;
  GemmPlan(const GemmPlan&) = delete;
  GemmPlan& operator=(const GemmPlan&) = delete;
  ~GemmPlan();
};

// D = scale op(A) op(B) (+ bias) (+ C), sums in F32. C may be D. Does nothing if m or n is 0.
struct Gemm {
  GemmShape shape;  // gemm() sets bias, add and alignment
  const void* a = nullptr;
  const void* b = nullptr;
  const void* bias = nullptr;  // null: none
  const void* c = nullptr;     // null: none
  void* d = nullptr;
  float scale = 1.0f;
};
void gemm(Stream& stream, Gemm g);
// The same with a given plan; requires a complete shape.
void multiply(Stream& stream, const Gemm& g, const GemmPlan& plan);

// The plans of a stream, each made when its shape is first met: from the recorded choice, by
// measuring, or as cuBLASLt advises. Not thread-safe: the stream's thread owns it.
class GemmPlans {
 public:
  const GemmPlan& find(Stream& stream, const Gemm& g);
  // See ops/kernel_choices.h.
  void use(const KernelChoices& choices);
  void measure(bool on);
  // The choices for products met since measuring began.
  const KernelChoices& met() const { return met_; }
  void clear() { plans_.clear(); }

 private:
  // A sequence has some tens of shapes; unpacked sequences end anywhere, and every length is a
  // shape of its own. A plan is not needed once its product is queued.
  static constexpr std::size_t kMostPlans = 1024;
  RecentMap<GemmShape, std::unique_ptr<GemmPlan>> plans_{kMostPlans};
  KernelChoices choices_, met_;
  bool measuring_ = false;

  // Uses the recorded choice, if there is one that cuBLASLt accepts.
  bool replay(cublasLtHandle_t blas, const Gemm& g, GemmPlan& plan) const;
};

}  // namespace longstride::ops::cuda
