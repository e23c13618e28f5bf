// Conversions between types; registers may be wider than the type that is read.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/cuda_twin/handlers.h"
#include "tests/cuda_twin/lanes.h"

namespace longstride::twin {
namespace {

float from_f16(std::uint32_t bits) {
  const std::uint32_t sign = (bits & 0x8000u) << 16, exponent = bits >> 10 & 31, part = bits & 1023;
  if (exponent == 0) {
    const float v = static_cast<float>(part) * 0x1p-24f;
    return sign != 0 ? -v : v;
  }
  const std::uint32_t wide = exponent == 31 ? 255 : exponent + 112;
  return std::bit_cast<float>(sign | wide << 23 | part << 13);
}

std::uint32_t to_f16(float x) {  // to nearest even
  const std::uint32_t sign = std::bit_cast<std::uint32_t>(x) >> 16 & 0x8000u;
  const float size = std::fabs(x);
  if (size != size) return 0x7FFF;
  if (size >= 65520.0f) return sign | 0x7C00u;
  if (size < 0x1p-14f)  // a multiple of the smallest one
    return sign | static_cast<std::uint32_t>(std::nearbyint(size * 0x1p24f));
  const auto bits = std::bit_cast<std::uint32_t>(size) - (112u << 23);
  return sign | ((bits + 0xFFFu + (bits >> 13 & 1)) >> 13);
}

template <class S>
S read(Warp& w, Operand o, int lane) {
  const std::uint64_t bits = w.value(o, lane);
  if constexpr (std::is_same_v<S, float>)
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits));
  else if constexpr (std::is_same_v<S, double>)
    return std::bit_cast<double>(bits);
  else
    return static_cast<S>(bits);
}

template <class D>
void write(Warp& w, Operand o, int lane, D v) {
  if constexpr (std::is_same_v<D, float>)
    w.set(o, lane, std::bit_cast<std::uint32_t>(v));
  else if constexpr (std::is_same_v<D, double>)
    w.set(o, lane, std::bit_cast<std::uint64_t>(v));
  else  // signed values extend to the register
    w.set(o, lane, static_cast<std::uint64_t>(static_cast<std::int64_t>(v)));
}

// The first source is the upper half.
template <std::uint32_t (*kConvert)(float)>
void convert_two(Warp& w, const Instruction& i, std::uint32_t lanes) {
  each_lane(lanes, [&](int l) {
    w.set(i.to[0], l,
          kConvert(read<float>(w, i.from[0], l)) << 16 | kConvert(read<float>(w, i.from[1], l)));
  });
}

enum Rounding : std::uint8_t { kNearest, kZero, kDown, kUp };

template <class F, int kRounding>
F rounded(F x) {
  if constexpr (kRounding == kNearest) return std::nearbyint(x);
  if constexpr (kRounding == kZero) return std::trunc(x);
  if constexpr (kRounding == kDown) return std::floor(x);
  if constexpr (kRounding == kUp) return std::ceil(x);
}

template <class D, class F>
D clamped(F x) {
  if (x != x) return 0;
  if (x <= static_cast<F>(std::numeric_limits<D>::min())) return std::numeric_limits<D>::min();
  if (x >= static_cast<F>(std::numeric_limits<D>::max())) return std::numeric_limits<D>::max();
  return static_cast<D>(x);
}

// As the bits of a register: signed values extend to it.
template <class T>
std::uint64_t bits_of(T v) {
  if constexpr (std::is_same_v<T, float>) return std::bit_cast<std::uint32_t>(v);
  if constexpr (std::is_same_v<T, double>) return std::bit_cast<std::uint64_t>(v);
  return static_cast<std::uint64_t>(static_cast<std::int64_t>(v));
}
template <class T>
T of_bits(std::uint64_t bits) {
  if constexpr (std::is_same_v<T, float>)
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits));
  if constexpr (std::is_same_v<T, double>) return std::bit_cast<double>(bits);
  return static_cast<T>(bits);
}

template <class D, class S, int kRounding, bool kSaturates>
D converted(S x) {
  if constexpr (std::is_floating_point_v<S> && std::is_integral_v<D>) {
    return clamped<D>(rounded<S, kRounding>(x));
  } else if constexpr (std::is_floating_point_v<S> && std::is_same_v<D, S>) {
    if constexpr (kSaturates) return x > 0 ? std::min(x, S{1}) : S{0};
    return rounded<S, kRounding>(x);
  } else {
    return static_cast<D>(x);
  }
}

template <class D, class S, int kRounding, bool kSaturates>
void convert(Warp& w, const Instruction& i, std::uint32_t lanes) {
  if (sizeof(S) > 1 && sizeof(D) > 1 && i.from[0].width == width_of<S> &&
      i.to[0].width == width_of<D>) {
    const S* const from = w.lanes<S>(i.from[0]);
    D* const to = w.lanes<D>(i.to[0]);
    each_lane(lanes, [&](int l) { to[l] = converted<D, S, kRounding, kSaturates>(from[l]); });
    return;
  }
  std::array<std::uint64_t, kLanes> all = read_all<std::uint64_t>(w, i.from[0]);
#pragma GCC ivdep
  for (std::uint64_t& bits : all)
    bits = bits_of<D>(converted<D, S, kRounding, kSaturates>(of_bits<S>(bits)));
  write_all(w, i.to[0], lanes, all);
}

template <class D, class S>
Handler conversion(int rounding, bool saturates) {
  if (saturates) return convert<D, S, kNearest, true>;
  if (rounding == kZero) return convert<D, S, kZero, false>;
  if (rounding == kDown) return convert<D, S, kDown, false>;
  if (rounding == kUp) return convert<D, S, kUp, false>;
  return convert<D, S, kNearest, false>;
}

}  // namespace

Meaning conversion_of(const std::vector<std::string>& name) {
  if (name.front() != "cvt" || name.size() < 3) return {};
  const std::string &to = name[name.size() - 2], &from = name.back();
  Meaning m;
  m.results = {width_of_type(to)};
  m.sources = {width_of_type(from)};
  if (to == "bf16x2" || to == "f16x2") {
    m.results = {Width::k32};
    m.sources = {Width::k32, Width::k32};
    m.run = to == "f16x2" ? convert_two<to_f16> : convert_two<to_bf16>;
    return m;
  }
  if (to == "bf16" && from == "f32") {
    m.run = [](Warp& w, const Instruction& i, std::uint32_t lanes) {
      each_lane(lanes, [&](int l) { w.set(i.to[0], l, to_bf16(read<float>(w, i.from[0], l))); });
    };
    return m;
  }
  if (to == "f16" && from == "f32") {
    m.run = [](Warp& w, const Instruction& i, std::uint32_t lanes) {
      each_lane(lanes, [&](int l) { w.set(i.to[0], l, to_f16(read<float>(w, i.from[0], l))); });
    };
    return m;
  }
  if (to == "f32" && from == "f16") {
    m.run = [](Warp& w, const Instruction& i, std::uint32_t lanes) {
      each_lane(lanes, [&](int l) {
        write(w, i.to[0], l, from_f16(static_cast<std::uint32_t>(w.value(i.from[0], l))));
      });
    };
    return m;
  }
  int rounding = kNearest;
  bool saturates = false, known = true;
  for (std::size_t part = 1; part + 2 < name.size(); ++part) {
    const std::string& p = name[part];
    if (p == "sat")
      saturates = true;
    else if (p == "rzi" || p == "rz")
      rounding = kZero;
    else if (p == "rmi")
      rounding = kDown;
    else if (p == "rpi")
      rounding = kUp;
    else
      known = known && (p == "rn" || p == "rni" || p == "ftz");
  }
  if (!known) return {};
  with_type(to, [&]<class D>(D*) {
    with_type(from, [&]<class S>(S*) { m.run = conversion<D, S>(rounding, saturates); });
  });
  return m;
}

}  // namespace longstride::twin
