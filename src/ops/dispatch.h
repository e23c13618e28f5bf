// LS_OP(name, Args) declares an operation: `name(Stream&, const Args&)` in longstride::ops, and its
// implementation per backend, cpu::name in cpu/<stem>.cc and cuda::name in cuda/<stem>.cu (or the
// stub in no_cuda/). Before either is called, `check(const Stream&, const Args&)` in
// checks/<stem>.cc rejects inconsistent arguments; a backend checks only its own requirements:
// alignment, supported sizes, values in its memory.
//
// Rules for every operation: arguments are plain data; outputs never alias inputs unless the header
// says so; nothing is allocated; all offsets are 64-bit; outputs state whether they are written (=)
// or added to (+=). Operations on one stream are called from one thread.
//
// LS_SIZE(name, Shape) declares a size that the backend determines, such as the scratch of a call:
// `name(const Stream&, const Shape&)`. A recording pass gets the size for the device it records
// for.
#pragma once

#include <cstdint>

#include "device/device.h"

#define LS_OP(name, Args)                                                    \
  namespace cpu {                                                            \
  void name(Stream& stream, const Args& args);                               \
  }                                                                          \
  namespace cuda {                                                           \
  void name(Stream& stream, const Args& args);                               \
  }                                                                          \
  void check(const Stream& stream, const Args& args);                        \
  inline void name(Stream& stream, const Args& args) {                       \
    if (stream.kind() == DeviceKind::kShapes) return;                        \
    check(stream, args);                                                     \
    if (stream.kind() == DeviceKind::kCuda) return cuda::name(stream, args); \
    cpu::name(stream, args);                                                 \
  }

#define LS_SIZE(name, Shape)                                                             \
  namespace cpu {                                                                        \
  std::int64_t name(const Shape& shape);                                                 \
  }                                                                                      \
  namespace cuda {                                                                       \
  std::int64_t name(const Shape& shape);                                                 \
  }                                                                                      \
  inline std::int64_t name(const Stream& stream, const Shape& shape) {                   \
    return stream.runs_on() == DeviceKind::kCuda ? cuda::name(shape) : cpu::name(shape); \
  }
