// Fused attention by cuDNN over one contiguous run of keys and values in BF16, grouped heads
// natively. Execution plans are made when their shape is met, and the last few hundred are kept.
//   T queries   S keys   H query heads   K KV heads   C head size
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <string>

#include "device/device.h"

namespace longstride::ops::cuda {

// Keys and values of token s lie at k + s * kv_stride and v + s * kv_stride, [K, C] each; q, out
// and their gradients are [T, H, C]; lse is [H, T].
struct RunShape {
  std::int64_t tokens = 0, keys = 0, query_heads = 0, kv_heads = 0, head_size = 0, kv_stride = 0;
  bool causal = false;  // the last query sees the last key, each one before it one less
  float scale = 1.0f;

  auto operator<=>(const RunShape&) const = default;  // NOLINT(modernize-use-nullptr)
};

// Exact: the same bits every time, for some speed.
enum class Pass : std::uint8_t { kForward, kExactBackward, kFastBackward };

struct RunForward {
  const void *q = nullptr, *k = nullptr, *v = nullptr;
  void* out = nullptr;
  float* lse = nullptr;
};

struct RunBackward {
  const void *q = nullptr, *k = nullptr, *v = nullptr, *out = nullptr, *dout = nullptr;
  const float* lse = nullptr;  // over all keys that the queries see, not this run's alone
  void *dq = nullptr, *dk = nullptr, *dv = nullptr;  // =; dk and dv lie as k and v do
};

// "9.19.0", or "none".
std::string cudnn_version();

class CudnnAttention {
 public:
  explicit CudnnAttention(Stream& stream);
  CudnnAttention(const CudnnAttention&) = delete;
  CudnnAttention& operator=(const CudnnAttention&) = delete;
  ~CudnnAttention();

  // Whether cuDNN takes this shape; its plan is made, and the workspace grows to what it needs.
  bool supports(const RunShape& shape, Pass pass);
  void forward(const RunShape& shape, const RunForward& args);
  void backward(const RunShape& shape, const RunBackward& args, Pass pass);
  // Bytes of the workspace that the plans made so far share.
  std::int64_t workspace_bytes() const;
  // So far, those that were dropped since included.
  std::int64_t plans_made() const;

 private:
  struct Plans;
  std::unique_ptr<Plans> plans_;
};

}  // namespace longstride::ops::cuda
