// Fused attention by cuDNN over one contiguous run of keys and values in BF16, with native support
// of grouped heads. Execution plans are made on demand; the few hundred used last are kept.
//   T queries   S keys   H query heads   K KV heads   C head size   B problems of a batch
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <string>

#include "device/device.h"

namespace longstride::ops::cuda {

// Keys and values of token s are at k + s * kv_stride and v + s * kv_stride, [K, C] each; q, out
// and their gradients are [T, H, C], or packed [H, T, C]; lse is [H, T]. The problems of a batch
// follow each other without gaps.
struct RunShape {
  std::int64_t tokens = 0, keys = 0, query_heads = 0, kv_heads = 0, head_size = 0, kv_stride = 0;
  bool causal = false;  // the last query sees all keys, each earlier query one key less
  float scale = 1.0f;
  std::int64_t batch = 1;
  bool packed = false;

  auto operator<=>(const RunShape&) const = default;  // NOLINT(modernize-use-nullptr)
};

// Exact: the same bits every time, at some cost in speed.
enum class Pass : std::uint8_t { kForward, kExactBackward, kFastBackward };

struct RunForward {
  const void *q = nullptr, *k = nullptr, *v = nullptr;
  void* out = nullptr;
  float* lse = nullptr;
};

struct RunBackward {
  const void *q = nullptr, *k = nullptr, *v = nullptr, *out = nullptr, *dout = nullptr;
  const float* lse = nullptr;  // over all keys that the queries see, not only this run's
  void *dq = nullptr, *dk = nullptr, *dv = nullptr;  // =; dk and dv have the layout of k and v
};

// "9.19.0", or "none".
std::string cudnn_version();

// Not thread-safe: the stream's thread owns it.
class CudnnAttention {
 public:
  explicit CudnnAttention(Stream& stream);
  CudnnAttention(const CudnnAttention&) = delete;
  CudnnAttention& operator=(const CudnnAttention&) = delete;
  ~CudnnAttention();

  // Whether cuDNN supports this shape. If so, makes its plan and grows the workspace as it needs.
  bool supports(const RunShape& shape, Pass pass);
  void forward(const RunShape& shape, const RunForward& args);
  void backward(const RunShape& shape, const RunBackward& args, Pass pass);
  // Bytes of the workspace that all plans share.
  std::int64_t workspace_bytes() const;
  // All plans made so far, dropped ones included.
  std::int64_t plans_made() const;

 private:
  struct Plans;
  std::unique_ptr<Plans> plans_;
};

}  // namespace longstride::ops::cuda
