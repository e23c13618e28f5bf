// The functions of cuBLASLt that we call.
#include <cublasLt.h>

#include "device/cuda/loaded_library.h"

#define LS_CUBLAS(Result, name, parameters, arguments) \
  LS_FORWARD(longstride::cuda::cublas_library(), Result, name, parameters, arguments)

extern "C" {
LS_CUBLAS(std::size_t, cublasLtGetVersion, (), ())
LS_CUBLAS(const char*, cublasLtGetStatusName, (cublasStatus_t status), (status))
LS_CUBLAS(const char*, cublasLtGetStatusString, (cublasStatus_t status), (status))
LS_CUBLAS(cublasStatus_t, cublasLtCreate, (cublasLtHandle_t * handle), (handle))
LS_CUBLAS(cublasStatus_t, cublasLtDestroy, (cublasLtHandle_t handle), (handle))
LS_CUBLAS(cublasStatus_t, cublasLtMatmulDescCreate,
          (cublasLtMatmulDesc_t * made, cublasComputeType_t compute, cudaDataType_t scale),
          (made, compute, scale))
LS_CUBLAS(cublasStatus_t, cublasLtMatmulDescDestroy, (cublasLtMatmulDesc_t operation), (operation))
LS_CUBLAS(cublasStatus_t, cublasLtMatmulDescSetAttribute,
          (cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t what, const void* value,
           std::size_t bytes),
          (operation, what, value, bytes))
LS_CUBLAS(cublasStatus_t, cublasLtMatrixLayoutCreate,
          (cublasLtMatrixLayout_t * made, cudaDataType type, std::uint64_t rows,
           std::uint64_t columns, std::int64_t ld),
          (made, type, rows, columns, ld))
LS_CUBLAS(cublasStatus_t, cublasLtMatrixLayoutDestroy, (cublasLtMatrixLayout_t layout), (layout))
LS_CUBLAS(cublasStatus_t, cublasLtMatmulPreferenceCreate, (cublasLtMatmulPreference_t * made),
          (made))
LS_CUBLAS(cublasStatus_t, cublasLtMatmulPreferenceDestroy, (cublasLtMatmulPreference_t preference),
          (preference))
LS_CUBLAS(cublasStatus_t, cublasLtMatmulPreferenceSetAttribute,
          (cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t what,
           const void* value, std::size_t bytes),
          (preference, what, value, bytes))
LS_CUBLAS(cublasStatus_t, cublasLtMatmulAlgoGetHeuristic,
          (cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, cublasLtMatrixLayout_t a,
           cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
           cublasLtMatmulPreference_t preference, int wanted,
           cublasLtMatmulHeuristicResult_t found[], int* count),
          (handle, operation, a, b, c, d, preference, wanted, found, count))
LS_CUBLAS(cublasStatus_t, cublasLtMatmulAlgoCheck,
          (cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, cublasLtMatrixLayout_t a,
           cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
           const cublasLtMatmulAlgo_t* algorithm, cublasLtMatmulHeuristicResult_t* result),
          (handle, operation, a, b, c, d, algorithm, result))
LS_CUBLAS(cublasStatus_t, cublasLtMatmul,
          (cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, const void* alpha,
           const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
           cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
           cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout,
           const cublasLtMatmulAlgo_t* algorithm, void* workspace, std::size_t workspace_bytes,
           cudaStream_t stream),
          (handle, operation, alpha, a, a_layout, b, b_layout, beta, c, c_layout, d, d_layout,
           algorithm, workspace, workspace_bytes, stream))
}
