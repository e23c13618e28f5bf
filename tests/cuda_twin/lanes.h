// For handlers: types by their names in PTX, and loops over the lanes that take part.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <string>
#include <type_traits>

#include "tests/cuda_twin/warp.h"

namespace longstride::twin {

template <class F>
inline void each_lane(std::uint32_t lanes, const F& f) {
  if (lanes == kAllLanes) {
#pragma GCC ivdep
    for (int lane = 0; lane < kLanes; ++lane) f(lane);
  } else {
    for (; lanes != 0; lanes &= lanes - 1) f(std::countr_zero(lanes));
  }
}

// Calls f with a null pointer to the type; false if there is no such type.
template <class F>
bool with_type(const std::string& type, const F& f) {
  const auto is = [&](auto* p, const char* name) {
    if (type != name) return false;
    f(p);
    return true;
  };
  return is(static_cast<std::int8_t*>(nullptr), "s8") ||
         is(static_cast<std::uint8_t*>(nullptr), "u8") ||
         is(static_cast<std::uint8_t*>(nullptr), "b8") ||
         is(static_cast<std::int16_t*>(nullptr), "s16") ||
         is(static_cast<std::uint16_t*>(nullptr), "u16") ||
         is(static_cast<std::uint16_t*>(nullptr), "b16") ||
         is(static_cast<std::int32_t*>(nullptr), "s32") ||
         is(static_cast<std::uint32_t*>(nullptr), "u32") ||
         is(static_cast<std::uint32_t*>(nullptr), "b32") ||
         is(static_cast<std::int64_t*>(nullptr), "s64") ||
         is(static_cast<std::uint64_t*>(nullptr), "u64") ||
         is(static_cast<std::uint64_t*>(nullptr), "b64") ||
         is(static_cast<float*>(nullptr), "f32") || is(static_cast<double*>(nullptr), "f64");
}

template <class T>
constexpr Width width_of = sizeof(T) == 8   ? Width::k64
                           : sizeof(T) == 4 ? Width::k32
                                            : Width::k16;

// Calls f with the lanes of a register of any width but that of predicates.
template <class F>
inline void with_lanes(Warp& w, Operand o, const F& f) {
  if (o.width == Width::k64)
    f(w.lanes<std::uint64_t>(o));
  else if (o.width == Width::k32)
    f(w.lanes<std::uint32_t>(o));
  else
    f(w.lanes<std::uint16_t>(o));
}

template <class T>
inline std::array<T, kLanes> read_all(Warp& w, Operand o) {
  std::array<T, kLanes> all;
  with_lanes(w, o, [&](const auto* from) {
#pragma GCC ivdep
    for (std::size_t l = 0; l < kLanes; ++l) all[l] = static_cast<T>(from[l]);
  });
  return all;
}
template <class T>
inline void write_all(Warp& w, Operand o, std::uint32_t lanes, const std::array<T, kLanes>& all) {
  with_lanes(w, o, [&]<class D>(D* to) {
    each_lane(lanes, [&](int l) { to[l] = static_cast<D>(all[static_cast<std::size_t>(l)]); });
  });
}

inline float from_bf16(std::uint32_t bits) { return std::bit_cast<float>(bits << 16); }
inline std::uint32_t to_bf16(float x) {  // to nearest even
  const auto bits = std::bit_cast<std::uint32_t>(x);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return 0x7FFF;
  return (bits + 0x7FFFu + (bits >> 16 & 1)) >> 16;
}

}  // namespace longstride::twin
