// The libraries of one stream's CUDA operations: handles and the workspace they share. Made at the
// stream's first use of a library; lives as long as the stream, whose thread owns it.
#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <memory>

#include "device/cuda/cuda_stream.h"
#include "ops/cuda/attention_cudnn.h"
#include "ops/cuda/attention_lengths.h"
#include "ops/cuda/gemm_plans.h"
#include "tensor/segment_visits.h"
#include "tensor/selected_pages.h"

namespace longstride::ops::cuda {

class LibraryContext final : public longstride::cuda::StreamExtension {
 public:
  explicit LibraryContext(longstride::cuda::CudaStream& stream);
  LibraryContext(const LibraryContext&) = delete;
  LibraryContext& operator=(const LibraryContext&) = delete;
  ~LibraryContext() override;

  // NVIDIA recommends 32 MiB for Hopper.
  static constexpr std::int64_t kWorkspaceBytes = std::int64_t{32} << 20;

  cublasLtHandle_t blas() const { return blas_; }
  void* workspace() const { return workspace_; }
  GemmPlans& gemms() { return gemms_; }
  // Made at the first call.
  CudnnAttention& attention(Stream& stream) {
    if (!attention_) attention_ = std::make_unique<CudnnAttention>(stream);
    return *attention_;
  }
  SegmentVisits& segment_visits() { return segment_visits_; }
  SelectedRanks& selected_ranks() { return selected_ranks_; }
  QueryLengths& query_lengths() { return query_lengths_; }

 private:
  cublasLtHandle_t blas_ = nullptr;
  void* workspace_ = nullptr;
  GemmPlans gemms_;
  std::unique_ptr<CudnnAttention> attention_;
  SegmentVisits segment_visits_;
  SelectedRanks selected_ranks_;
  QueryLengths query_lengths_;
};

LibraryContext& libraries_of(Stream& stream);

// Throws InternalError unless `status` is success.
void check_blas(cublasStatus_t status, const char* call, const char* file, int line);

}  // namespace longstride::ops::cuda

#define LS_BLAS(call) ::longstride::ops::cuda::check_blas((call), #call, __FILE__, __LINE__)
