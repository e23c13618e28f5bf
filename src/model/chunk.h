// The chunk that a layer works on, and the small calls that layer code is written in.
#pragma once

#include <cstdint>

#include "device/device.h"
#include "model/config.h"
#include "model/head_exchange.h"
#include "model/workspace.h"
#include "tensor/view.h"

namespace longstride {

// What attention works on: the chunk, with all heads; or, where processes share them, all of the
// chunk with this process's heads, while the context is of its slice.
struct AttendedChunk {
  std::int64_t begin = 0, tokens = 0;
  std::int64_t query_heads = 0, kv_heads = 0;
  ConstView cos_TN, sin_TN;
};

// Of processes that share heads.
struct SharedChunk {
  HeadShare share = {};
  HeadExchange* exchange = nullptr;  // null while shapes are being recorded
  std::int64_t begin = 0, tokens = 0;
  ConstView cos_TN, sin_TN;
};

struct ChunkContext {
  Device& device;
  Workspace& workspace;
  const ModelConfig& config;
  std::int64_t begin = 0;   // global index of the first token of the chunk, or of a slice of it
  std::int64_t tokens = 0;  // T
  ConstView cos_TN, sin_TN;
  DType compute = DType::kF32;  // type of activations
  bool exact = true;            // the same bits in every run
  SharedChunk shared = {};

  AttendedChunk attended() const {
    const SharedChunk& s = shared;
    if (!s.share.several())
      return {begin, tokens, config.query_heads, config.kv_heads, cos_TN, sin_TN};
    return {s.begin,  s.tokens, config.query_heads / s.share.ranks, config.kv_heads / s.share.ranks,
            s.cos_TN, s.sin_TN};
  }

  Stream& stream() const { return device.stream(); }
  // An activation.
  Lease take(const char* name, Shape shape) const { return workspace.take(name, compute, shape); }
  // Sums, tables and scratch.
  Lease take_f32(const char* name, Shape shape) const {
    return workspace.take(name, DType::kF32, shape);
  }
};

// y = x w^T + b + add; `b` and `add` may be absent. A quantized `w` is widened first, here and in
// linear_backward, into a tensor of the workspace.
void linear(const ChunkContext& ctx, ConstView x, ConstView w, ConstView b, View y,
            ConstView add = {}, ConstView tail = {});
// dx = (or +=) dy w; dw += dy^T x; db += column sums of dy. Absent outputs are not computed.
void linear_backward(const ChunkContext& ctx, ConstView dy, ConstView x, ConstView w, View dx,
                     View dw, View db, bool accumulate_dx = false, ConstView tail = {});
// Without a weight, where a family has no norm, y = x; y may be x only if there is one.
void rms_norm(const ChunkContext& ctx, ConstView x, ConstView w, View y);
// dx = (or +=), dw += unless it is absent.
void rms_norm_backward(const ChunkContext& ctx, ConstView dy, ConstView x, ConstView w, View dx,
                       View dw, bool accumulate_dx);
void copy(const ChunkContext& ctx, ConstView from, View to);

}  // namespace longstride
