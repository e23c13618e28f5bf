#include "model/host_values.h"

#include <cstring>

#include "base/error.h"

namespace longstride {
namespace {

template <class E>
E read(const std::byte* at) {
  E x;
  std::memcpy(&x, at, sizeof(E));
  return x;
}

// The exponent is all ones exactly in NaN and infinity. A branch-free loop skips blocks without
// one.
template <class Bits>
std::int64_t find_exponent(const std::byte* bytes, std::int64_t count, Bits exponent) {
  constexpr std::int64_t kBlock = 4096;
  for (std::int64_t begin = 0; begin < count; begin += kBlock) {
    const std::int64_t end = begin + kBlock < count ? begin + kBlock : count;
    bool any = false;
    for (std::int64_t i = begin; i < end; ++i)
      any |= (read<Bits>(bytes + i * std::int64_t{sizeof(Bits)}) & exponent) == exponent;
    if (!any) continue;
    for (std::int64_t i = begin; i < end; ++i)
      if ((read<Bits>(bytes + i * std::int64_t{sizeof(Bits)}) & exponent) == exponent) return i;
  }
  return -1;
}

}  // namespace

void store_floats(std::span<const float> values, DType dtype, std::byte* out) {
  const auto store = [&](auto convert) {
    for (const float v : values) {
      const auto x = convert(v);
      std::memcpy(out, &x, sizeof(x));
      out += sizeof(x);
    }
  };
  switch (dtype) {
    case DType::kF32:
      return store([](float v) { return v; });
    case DType::kF16:
      return store([](float v) { return to_f16(v); });
    case DType::kBF16:
      return store([](float v) { return to_bf16(v); });
    case DType::kF64:
      return store([](float v) { return static_cast<double>(v); });
    default:
      LS_CHECK(false, "{} is not a floating-point type", name_of(dtype));
  }
}

void load_floats(const std::byte* bytes, DType dtype, std::span<float> out) {
  switch (dtype) {
    case DType::kF32:
      if (!out.empty()) std::memcpy(out.data(), bytes, out.size_bytes());
      return;
    case DType::kF16:
      for (std::size_t i = 0; i < out.size(); ++i) out[i] = to_float(read<f16>(bytes + 2 * i));
      return;
    case DType::kBF16:
      for (std::size_t i = 0; i < out.size(); ++i) out[i] = to_float(read<bf16>(bytes + 2 * i));
      return;
    case DType::kF64:
      for (std::size_t i = 0; i < out.size(); ++i)
        out[i] = static_cast<float>(read<double>(bytes + 8 * i));
      return;
    default:
      LS_CHECK(false, "{} is not a floating-point type", name_of(dtype));
  }
}

std::int64_t first_nonfinite(const std::byte* bytes, DType dtype, std::int64_t count) {
  switch (dtype) {
    case DType::kF32:
      return find_exponent<std::uint32_t>(bytes, count, 0x7f800000u);
    case DType::kF16:
      return find_exponent<std::uint16_t>(bytes, count, 0x7c00u);
    case DType::kBF16:
      return find_exponent<std::uint16_t>(bytes, count, 0x7f80u);
    case DType::kF64:
      return find_exponent<std::uint64_t>(bytes, count, 0x7ff0000000000000u);
    default:
      LS_CHECK(false, "{} is not a floating-point type", name_of(dtype));
  }
  return -1;
}

}  // namespace longstride
