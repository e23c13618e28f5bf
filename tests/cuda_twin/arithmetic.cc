// Arithmetic of PTX, one lane like the other.
#include <algorithm>
#include <cfenv>
#include <cmath>
#include <limits>

#include "tests/cuda_twin/handlers.h"
#include "tests/cuda_twin/lanes.h"

namespace longstride::twin {
namespace {

template <class T>
using Unsigned = std::make_unsigned_t<T>;

// One result of N sources, all of type T.
template <class T, int N, class F>
Meaning of_same(F) {
  static_assert(std::is_empty_v<F>);
  Meaning m;
  m.results = {width_of<T>};
  m.sources.assign(N, width_of<T>);
  m.run = [](Warp& w, const Instruction& i, std::uint32_t lanes) {
    T* const to = w.lanes<T>(i.to[0]);
    const T* const a = w.lanes<T>(i.from[0]);
    const T* const b = w.lanes<T>(i.from[N > 1 ? 1 : 0]);
    const T* const c = w.lanes<T>(i.from[N > 2 ? 2 : 0]);
    each_lane(lanes, [&](int l) {
      if constexpr (N == 1) to[l] = F{}(a[l]);
      if constexpr (N == 2) to[l] = F{}(a[l], b[l]);
      if constexpr (N == 3) to[l] = F{}(a[l], b[l], c[l]);
    });
  };
  return m;
}

template <class T, class F>
Meaning comparison(F) {
  Meaning m;
  m.results = {Width::kPredicate};
  m.sources = {width_of<T>, width_of<T>};
  m.run = [](Warp& w, const Instruction& i, std::uint32_t lanes) {
    const T* const a = w.lanes<T>(i.from[0]);
    const T* const b = w.lanes<T>(i.from[1]);
    std::uint32_t bits = 0;
    for (int l = 0; l < kLanes; ++l)
      bits |= static_cast<std::uint32_t>(F{}(a[l], b[l]) ? 1 : 0) << l;
    std::uint32_t& to = w.predicate(i.to[0]);
    to = (to & ~lanes) | (bits & lanes);
  };
  return m;
}

template <class T>
Meaning comparison_named(const std::string& name) {
  if (name == "eq") return comparison<T>([](T a, T b) { return a == b; });
  if (name == "ne") {
    // Ordered: false if one is NaN.
    if constexpr (std::is_floating_point_v<T>)
      return comparison<T>([](T a, T b) { return a < b || a > b; });
    else
      return comparison<T>([](T a, T b) { return a != b; });
  }
  if (name == "lt" || name == "lo") return comparison<T>([](T a, T b) { return a < b; });
  if (name == "le" || name == "ls") return comparison<T>([](T a, T b) { return a <= b; });
  if (name == "gt" || name == "hi") return comparison<T>([](T a, T b) { return a > b; });
  if (name == "ge" || name == "hs") return comparison<T>([](T a, T b) { return a >= b; });
  if constexpr (std::is_floating_point_v<T>) {
    if (name == "equ") return comparison<T>([](T a, T b) { return !(a < b || a > b); });
    if (name == "neu") return comparison<T>([](T a, T b) { return !(a == b); });
    if (name == "ltu") return comparison<T>([](T a, T b) { return !(a >= b); });
    if (name == "leu") return comparison<T>([](T a, T b) { return !(a > b); });
    if (name == "gtu") return comparison<T>([](T a, T b) { return !(a <= b); });
    if (name == "geu") return comparison<T>([](T a, T b) { return !(a < b); });
    if (name == "nan") return comparison<T>([](T a, T b) { return a != a || b != b; });
    if (name == "num") return comparison<T>([](T a, T b) { return a == a && b == b; });
  }
  return {};
}

// Predicates: all lanes at once.
template <class F>
Meaning of_predicates(int sources, F) {
  Meaning m;
  m.results = {Width::kPredicate};
  m.sources.assign(static_cast<std::size_t>(sources), Width::kPredicate);
  m.run = [](Warp& w, const Instruction& i, std::uint32_t lanes) {
    const std::uint32_t a = w.predicate(i.from[0]), b = w.predicate(i.from[i.sources > 1 ? 1 : 0]);
    std::uint32_t& to = w.predicate(i.to[0]);
    to = (to & ~lanes) | (F{}(a, b) & lanes);
  };
  return m;
}

template <class T>
Meaning select() {
  Meaning m;
  m.results = {width_of<T>};
  m.sources = {width_of<T>, width_of<T>, Width::kPredicate};
  m.run = [](Warp& w, const Instruction& i, std::uint32_t lanes) {
    T* const to = w.lanes<T>(i.to[0]);
    const T* const a = w.lanes<T>(i.from[0]);
    const T* const b = w.lanes<T>(i.from[1]);
    const std::uint32_t p = w.predicate(i.from[2]);
    each_lane(lanes, [&](int l) { to[l] = (p >> l & 1) != 0 ? a[l] : b[l]; });
  };
  return m;
}

// Shifts by 32-bit amounts; past the width nothing (or the sign) is left.
template <class T, bool kLeft>
Meaning shift() {
  Meaning m;
  m.results = {width_of<T>};
  m.sources = {width_of<T>, Width::k32};
  m.run = [](Warp& w, const Instruction& i, std::uint32_t lanes) {
    constexpr std::uint32_t kBits = 8 * sizeof(T);
    T* const to = w.lanes<T>(i.to[0]);
    const T* const a = w.lanes<T>(i.from[0]);
    const auto* const by = w.lanes<std::uint32_t>(i.from[1]);
    each_lane(lanes, [&](int l) {
      const std::uint32_t n = by[l];
      if (kLeft)
        to[l] = n >= kBits ? T{0} : static_cast<T>(static_cast<Unsigned<T>>(a[l]) << n);
      else if (n >= kBits)
        to[l] = static_cast<T>(std::is_signed_v<T> && a[l] < 0 ? -1 : 0);
      else
        to[l] = static_cast<T>(a[l] >> n);
    });
  };
  return m;
}

// Products twice as wide as their factors, and a summand as wide.
template <class T, class Wide, bool kAdds>
Meaning wide_product() {
  Meaning m;
  m.results = {width_of<Wide>};
  m.sources = {width_of<T>, width_of<T>};
  if (kAdds) m.sources.push_back(width_of<Wide>);
  m.run = [](Warp& w, const Instruction& i, std::uint32_t lanes) {
    Wide* const to = w.lanes<Wide>(i.to[0]);
    const T* const a = w.lanes<T>(i.from[0]);
    const T* const b = w.lanes<T>(i.from[1]);
    const Wide* const c = w.lanes<Wide>(i.from[kAdds ? 2 : 0]);
    each_lane(lanes, [&](int l) {
      const Wide product = static_cast<Wide>(a[l]) * static_cast<Wide>(b[l]);
      to[l] = kAdds ? static_cast<Wide>(product + c[l]) : product;
    });
  };
  return m;
}

template <bool kAdds>
Meaning wide_product_of(const std::string& type) {
  if (type == "s32") return wide_product<std::int32_t, std::int64_t, kAdds>();
  if (type == "u32") return wide_product<std::uint32_t, std::uint64_t, kAdds>();
  if (type == "s16") return wide_product<std::int16_t, std::int32_t, kAdds>();
  if (type == "u16") return wide_product<std::uint16_t, std::uint32_t, kAdds>();
  return {};
}

// fma.rm
void multiply_add_down(Warp& w, const Instruction& i, std::uint32_t lanes) {
  float* const to = w.lanes<float>(i.to[0]);
  const float *const a = w.lanes<float>(i.from[0]), *const b = w.lanes<float>(i.from[1]),
                     *const c = w.lanes<float>(i.from[2]);
  const int before = std::fegetround();
  std::fesetround(FE_DOWNWARD);
  each_lane(lanes, [&](int l) {
    volatile float sum = c[l];
    sum = std::fma(a[l], b[l], sum);
    to[l] = sum;
  });
  std::fesetround(before);
}

template <class T>
Meaning float_operation(const std::string& op, const std::string& rounding) {
  if (op == "add") return of_same<T, 2>([](T a, T b) { return a + b; });
  if (op == "sub") return of_same<T, 2>([](T a, T b) { return a - b; });
  if (op == "mul") return of_same<T, 2>([](T a, T b) { return a * b; });
  if (op == "div") return of_same<T, 2>([](T a, T b) { return a / b; });
  if (op == "fma" && rounding == "rm" && sizeof(T) == 4)
    return {multiply_add_down, {Width::k32}, {Width::k32, Width::k32, Width::k32}};
  if (op == "fma" && rounding == "rn")
    return of_same<T, 3>([](T a, T b, T c) { return std::fma(a, b, c); });
  if (op == "min") return of_same<T, 2>([](T a, T b) { return std::fmin(a, b); });
  if (op == "max") return of_same<T, 2>([](T a, T b) { return std::fmax(a, b); });
  if (op == "neg") return of_same<T, 1>([](T a) { return -a; });
  if (op == "abs") return of_same<T, 1>([](T a) { return std::fabs(a); });
  if (op == "rcp") return of_same<T, 1>([](T a) { return T{1} / a; });
  if (op == "sqrt") return of_same<T, 1>([](T a) { return std::sqrt(a); });
  if (op == "rsqrt") return of_same<T, 1>([](T a) { return T{1} / std::sqrt(a); });
  if (op == "ex2") return of_same<T, 1>([](T a) { return std::exp2(a); });
  if (op == "lg2") return of_same<T, 1>([](T a) { return std::log2(a); });
  return {};
}

// The upper half of a product of 128 bits.
template <class T>
T high_product(T a, T b) {
  const auto low = [](T x) { return static_cast<std::uint64_t>(x) & 0xFFFFFFFF; };
  const T a_high = a >> 32, b_high = b >> 32;
  const auto middle =
      static_cast<T>(a_high * static_cast<T>(low(b)) + static_cast<T>(low(a) * low(b) >> 32));
  const T carried = static_cast<T>(static_cast<T>(low(a)) * b_high + static_cast<T>(low(middle)));
  return a_high * b_high + (middle >> 32) + (carried >> 32);
}

template <class T>
Meaning integer_operation(const std::string& op, bool high) {
  using U = Unsigned<T>;
  if (op == "add") return of_same<T, 2>([](T a, T b) { return static_cast<T>(U(a) + U(b)); });
  if (op == "sub") return of_same<T, 2>([](T a, T b) { return static_cast<T>(U(a) - U(b)); });
  if constexpr (sizeof(T) == 4) {
    using Wide = std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>;
    if (op == "mul" && high)
      return of_same<T, 2>([](T a, T b) { return static_cast<T>(Wide(a) * Wide(b) >> 32); });
  }
  if constexpr (sizeof(T) == 8) {
    if (op == "mul" && high) return of_same<T, 2>([](T a, T b) { return high_product(a, b); });
  }
  if (high) return {};
  if (op == "mul")
    return of_same<T, 2>(
        [](T a, T b) { return static_cast<T>(std::uint64_t(a) * std::uint64_t(b)); });
  if (op == "mad")
    return of_same<T, 3>([](T a, T b, T c) {
      return static_cast<T>(std::uint64_t(a) * std::uint64_t(b) + std::uint64_t(c));
    });
  if (op == "div")
    return of_same<T, 2>([](T a, T b) {
      if (b == 0) return static_cast<T>(-1);
      if (std::is_signed_v<T> && b == static_cast<T>(-1)) return static_cast<T>(U{0} - U(a));
      return static_cast<T>(a / b);
    });
  if (op == "rem")
    return of_same<T, 2>([](T a, T b) {
      if (b == 0) return a;
      if (std::is_signed_v<T> && b == static_cast<T>(-1)) return T{0};
      return static_cast<T>(a % b);
    });
  if (op == "min") return of_same<T, 2>([](T a, T b) { return std::min(a, b); });
  if (op == "max") return of_same<T, 2>([](T a, T b) { return std::max(a, b); });
  if (op == "neg") return of_same<T, 1>([](T a) { return static_cast<T>(U{0} - U(a)); });
  if (op == "abs")
    return of_same<T, 1>([](T a) { return static_cast<T>(a < 0 ? U{0} - U(a) : U(a)); });
  if (op == "and") return of_same<T, 2>([](T a, T b) { return static_cast<T>(a & b); });
  if (op == "or") return of_same<T, 2>([](T a, T b) { return static_cast<T>(a | b); });
  if (op == "xor") return of_same<T, 2>([](T a, T b) { return static_cast<T>(a ^ b); });
  if (op == "not") return of_same<T, 1>([](T a) { return static_cast<T>(~a); });
  if (op == "shl") return shift<T, true>();
  if (op == "shr") return shift<T, false>();
  return {};
}

// Counts and permutations of bits; some take operands of several widths.
Meaning bit_operation(const std::string& op, const std::string& type) {
  Meaning m;
  if (op == "popc") {
    m.results = {Width::k32};
    m.sources = {width_of_type(type)};
    m.run = [](Warp& w, const Instruction& i, std::uint32_t lanes) {
      each_lane(lanes, [&](int l) {
        w.set(i.to[0], l, static_cast<std::uint64_t>(std::popcount(w.value(i.from[0], l))));
      });
    };
  } else if (op == "clz" && type == "b32") {
    m.results = m.sources = {Width::k32};
    m.run = [](Warp& w, const Instruction& i, std::uint32_t lanes) {
      each_lane(lanes, [&](int l) {
        w.set(i.to[0], l,
              static_cast<std::uint64_t>(
                  std::countl_zero(static_cast<std::uint32_t>(w.value(i.from[0], l)))));
      });
    };
  } else if (op == "prmt") {
    m.results = {Width::k32};
    m.sources.assign(3, Width::k32);
    m.run = [](Warp& w, const Instruction& i, std::uint32_t lanes) {
      each_lane(lanes, [&](int l) {
        const std::uint64_t bytes = w.value(i.from[0], l) | w.value(i.from[1], l) << 32;
        const std::uint64_t selector = w.value(i.from[2], l);
        std::uint32_t made = 0;
        for (int b = 0; b < 4; ++b) {
          const std::uint64_t pick = selector >> 4 * b & 15;
          std::uint32_t byte = bytes >> 8 * (pick & 7) & 0xFF;
          if ((pick & 8) != 0) byte = (byte & 0x80) != 0 ? 0xFF : 0;
          made |= byte << 8 * b;
        }
        w.set(i.to[0], l, made);
      });
    };
  } else if (op == "bfi") {
    const Width width = width_of_type(type);
    m.results = {width};
    m.sources = {width, width, Width::k32, Width::k32};
    m.run = [](Warp& w, const Instruction& i, std::uint32_t lanes) {
      each_lane(lanes, [&](int l) {
        const std::uint64_t at = w.value(i.from[2], l) & 0xFF, n = w.value(i.from[3], l) & 0xFF;
        const std::uint64_t ones = n >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << n) - 1;
        const std::uint64_t mask = at >= 64 ? 0 : ones << at;
        const std::uint64_t placed = at >= 64 ? 0 : w.value(i.from[0], l) << at;
        w.set(i.to[0], l, (w.value(i.from[1], l) & ~mask) | (placed & mask));
      });
    };
  } else if (op == "bfe") {
    const Width width = width_of_type(type);
    if (type[0] != 'u') return {};
    m.results = {width};
    m.sources = {width, Width::k32, Width::k32};
    m.run = [](Warp& w, const Instruction& i, std::uint32_t lanes) {
      each_lane(lanes, [&](int l) {
        const std::uint64_t at = w.value(i.from[1], l) & 0xFF, n = w.value(i.from[2], l) & 0xFF;
        const std::uint64_t ones = n >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << n) - 1;
        w.set(i.to[0], l, at >= 64 ? 0 : w.value(i.from[0], l) >> at & ones);
      });
    };
  }
  return m;
}

}  // namespace

Width width_of_type(const std::string& type) {
  if (type == "pred") return Width::kPredicate;
  if (type.ends_with("64")) return Width::k64;
  if (type.ends_with("16") || type.ends_with("s8") || type.ends_with("u8") || type.ends_with("b8"))
    return Width::k16;
  return Width::k32;
}

Meaning arithmetic_of(const std::vector<std::string>& name) {
  const std::string &op = name.front(), &type = name.back();
  if (type == "pred") {
    using U = std::uint32_t;
    if (op == "and") return of_predicates(2, [](U a, U b) { return a & b; });
    if (op == "or") return of_predicates(2, [](U a, U b) { return a | b; });
    if (op == "xor") return of_predicates(2, [](U a, U b) { return a ^ b; });
    if (op == "not") return of_predicates(1, [](U a, U) { return ~a; });
    if (op == "mov") return of_predicates(1, [](U a, U) { return a; });
    return {};
  }
  if (Meaning m = bit_operation(op, type); m.run != nullptr) return m;
  if ((op == "mul" || op == "mad") && name.size() == 3 && name[1] == "wide")
    return op == "mul" ? wide_product_of<false>(type) : wide_product_of<true>(type);
  Meaning m;
  with_type(type, [&]<class T>(T*) {
    if (op == "mov") {
      m = of_same<T, 1>([](T a) { return a; });
    } else if (op == "selp") {
      m = select<T>();
    } else if (op == "setp") {
      m = comparison_named<T>(name[1]);
    } else if constexpr (std::is_floating_point_v<T>) {
      m = float_operation<T>(op, name.size() > 2 ? name[1] : "");
    } else if constexpr (sizeof(T) > 1) {
      m = integer_operation<T>(op, name.size() > 2 && name[1] == "hi");
    }
  });
  return m;
}

}  // namespace longstride::twin
