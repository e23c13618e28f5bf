// Linked instead of cudnn/ in builds without cuDNN: it supports no shape, so our own kernels
// compute all attention.
#include "ops/cuda/attention_cudnn.h"

#include "base/error.h"

namespace longstride::ops::cuda {

struct CudnnAttention::Plans {};

CudnnAttention::CudnnAttention(Stream&) {}
CudnnAttention::~CudnnAttention() = default;
bool CudnnAttention::supports(const RunShape&, Pass) { return false; }
void CudnnAttention::forward(const RunShape&, const RunForward&) { LS_CHECK(false, "no cuDNN"); }
void CudnnAttention::backward(const RunShape&, const RunBackward&, Pass) {
  LS_CHECK(false, "no cuDNN");
}
std::int64_t CudnnAttention::workspace_bytes() const { return 0; }
std::int64_t CudnnAttention::plans_made() const { return 0; }
std::string cudnn_version() { return "none"; }

}  // namespace longstride::ops::cuda
