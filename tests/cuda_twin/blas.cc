// cuBLASLt by the twin: products of column-major matrices by OpenBLAS, in F32.
#include <cblas.h>
#include <cublasLt.h>

#include <cstring>
#include <vector>

#include "tests/cuda_twin/lanes.h"
#include "tests/cuda_twin/memory.h"
#include "tests/cuda_twin/queue.h"

namespace longstride::twin {
namespace {

struct Description {
  cublasOperation_t a = CUBLAS_OP_N, b = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
  cudaDataType_t bias_type = CUDA_R_32F;
};

std::size_t size_of(cudaDataType type) { return type == CUDA_R_32F ? 4 : 2; }

struct Layout {
  cudaDataType type = CUDA_R_32F;
  std::uint64_t rows = 0, columns = 0;
  std::int64_t ld = 0;
  std::size_t bytes() const {
    const auto elements = static_cast<std::size_t>(ld) * (columns - 1) + rows;
    return elements * size_of(type);
  }
};

template <class T>
T& as(void* opaque) {
  return *static_cast<T*>(opaque);
}

float element(const void* data, cudaDataType type, std::size_t i) {
  if (type == CUDA_R_32F) return static_cast<const float*>(data)[i];
  return from_bf16(static_cast<const std::uint16_t*>(data)[i]);
}

struct Product {
  Description how;
  Layout a_layout, b_layout, c_layout, d_layout;
  const void *a = nullptr, *b = nullptr, *c = nullptr;
  void* d = nullptr;
  float alpha = 1, beta = 0;
};

void need(const void* data, const Layout& layout, const char* what) {
  if (!lies_in(Place::kDevice, data, layout.bytes()))
    throw Fault(std::string("a product's ") + what + " is not in one device allocation");
}

void multiply(const Product& p) {
  need(p.a, p.a_layout, "first factor");
  need(p.b, p.b_layout, "second factor");
  need(p.d, p.d_layout, "result");
  if (p.beta != 0) need(p.c, p.c_layout, "summand");
  const std::uint64_t m = p.d_layout.rows, n = p.d_layout.columns;
  const std::uint64_t k = p.how.a == CUBLAS_OP_N ? p.a_layout.columns : p.a_layout.rows;
  const auto widened = [](const void* data, const Layout& l) {
    std::vector<float> made(l.bytes() / size_of(l.type));
    for (std::size_t i = 0; i < made.size(); ++i) made[i] = element(data, l.type, i);
    return made;
  };
  const auto number = [](std::uint64_t v) { return static_cast<int>(v); };
  const std::vector<float> a = widened(p.a, p.a_layout), b = widened(p.b, p.b_layout);
  std::vector<float> product(m * n);
  const auto way = [](cublasOperation_t o) { return o == CUBLAS_OP_N ? CblasNoTrans : CblasTrans; };
  cblas_sgemm(CblasColMajor, way(p.how.a), way(p.how.b), number(m), number(n), number(k), p.alpha,
              a.data(), static_cast<int>(p.a_layout.ld), b.data(), static_cast<int>(p.b_layout.ld),
              0, product.data(), number(m));
  for (std::uint64_t column = 0; column < n; ++column)
    for (std::uint64_t i = 0; i < m; ++i) {
      float v = product[column * m + i];
      if (p.beta != 0)
        v += p.beta *
             element(p.c, p.c_layout.type, i + column * static_cast<std::uint64_t>(p.c_layout.ld));
      if (p.how.epilogue == CUBLASLT_EPILOGUE_BIAS) v += element(p.how.bias, p.how.bias_type, i);
      const std::uint64_t at = i + column * static_cast<std::uint64_t>(p.d_layout.ld);
      if (p.d_layout.type == CUDA_R_32F)
        static_cast<float*>(p.d)[at] = v;
      else
        static_cast<std::uint16_t*>(p.d)[at] = static_cast<std::uint16_t>(to_bf16(v));
    }
}

}  // namespace
}  // namespace longstride::twin

namespace twin = longstride::twin;

extern "C" {

std::size_t cublasLtGetVersion() { return 130000; }
const char* cublasLtGetStatusString(cublasStatus_t) { return "an error of the CUDA twin"; }
const char* cublasLtGetStatusName(cublasStatus_t) { return "an error of the CUDA twin"; }
cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = nullptr;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* made, cublasComputeType_t,
                                        cudaDataType_t) {
  *made = reinterpret_cast<cublasLtMatmulDesc_t>(new twin::Description);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d) {
  delete &twin::as<twin::Description>(d);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t operation,
                                              cublasLtMatmulDescAttributes_t what,
                                              const void* value, std::size_t bytes) {
  auto& d = twin::as<twin::Description>(operation);
  void* const to = what == CUBLASLT_MATMUL_DESC_TRANSA           ? static_cast<void*>(&d.a)
                   : what == CUBLASLT_MATMUL_DESC_TRANSB         ? &d.b
                   : what == CUBLASLT_MATMUL_DESC_EPILOGUE       ? &d.epilogue
                   : what == CUBLASLT_MATMUL_DESC_BIAS_POINTER   ? static_cast<void*>(&d.bias)
                   : what == CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE ? &d.bias_type
                                                                 : nullptr;
  if (to == nullptr) return CUBLAS_STATUS_NOT_SUPPORTED;
  std::memcpy(to, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* made, cudaDataType type,
                                          std::uint64_t rows, std::uint64_t columns,
                                          std::int64_t ld) {
  *made = reinterpret_cast<cublasLtMatrixLayout_t>(new twin::Layout{type, rows, columns, ld});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete &twin::as<twin::Layout>(layout);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* made) {
  *made = nullptr;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t,
                                                    cublasLtMatmulPreferenceAttributes_t,
                                                    const void*, std::size_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatmulPreference_t, int,
                                              cublasLtMatmulHeuristicResult_t found[], int* count) {
  found[0] = {};
  found[0].state = CUBLAS_STATUS_SUCCESS;
  *count = 1;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t,
                                       cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                       cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                       const cublasLtMatmulAlgo_t* algorithm,
                                       cublasLtMatmulHeuristicResult_t* result) {
  // The twin knows the one algorithm that it advises.
  for (const std::uint64_t word : algorithm->data)
    if (word != 0) return CUBLAS_STATUS_NOT_SUPPORTED;
  *result = {};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t operation, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t*, void*,
                              std::size_t, cudaStream_t stream) {
  twin::Product p;
  p.how = twin::as<twin::Description>(operation);
  p.a_layout = twin::as<twin::Layout>(a_layout);
  p.b_layout = twin::as<twin::Layout>(b_layout);
  p.c_layout = twin::as<twin::Layout>(c_layout);
  p.d_layout = twin::as<twin::Layout>(d_layout);
  p.a = a;
  p.b = b;
  p.c = c;
  p.d = d;
  p.alpha = *static_cast<const float*>(alpha);
  p.beta = *static_cast<const float*>(beta);
  twin::enqueue(stream, [p] { twin::multiply(p); });
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
