// Element types and their conversions on the host.
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

namespace longstride {

// kF8E4M3: codes of pages (tensor/page_codes.h). The last three are block formats of quantized
// matrices: codes with scales, one record per tensor (tensor/block_formats.h). They have no size
// per element.
enum class DType : std::uint8_t {
  kF32,
  kBF16,
  kF16,
  kI32,
  kI64,
  kU8,
  kF64,
  kI8,
  kF8E4M3,
  kNf4,       // 4 bits, blocks of 64, scales of 8 bits
  kNf4Wide,   // the same with scales in F32
  kInt8Rows,  // 8 bits, a scale per row
};

constexpr bool is_block_format(DType t) {
  return t == DType::kNf4 || t == DType::kNf4Wide || t == DType::kInt8Rows;
}

// Throws InternalError: bytes_of (tensor/view.h) is the size of a block format.
[[noreturn]] void refuse_element_size(DType t);

// Bytes of an element; not for block formats.
constexpr std::int64_t size_of(DType t) {
  switch (t) {
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kBF16:
    case DType::kF16:
      return 2;
    case DType::kI64:
    case DType::kF64:
      return 8;
    case DType::kU8:
    case DType::kI8:
    case DType::kF8E4M3:
      return 1;
    case DType::kNf4:
    case DType::kNf4Wide:
    case DType::kInt8Rows:
      break;
  }
  refuse_element_size(t);
}

// True for the types that weights may have, unless they are quantized.
constexpr bool is_weight_type(DType t) {
  return t == DType::kF32 || t == DType::kBF16 || t == DType::kF16;
}

// The name used by safetensors: "F32", "BF16", ...
std::string_view name_of(DType t);

struct bf16 {
  std::uint16_t bits;
};
struct f16 {
  std::uint16_t bits;
};

constexpr float to_float(bf16 x) { return std::bit_cast<float>(std::uint32_t{x.bits} << 16); }

// Round to nearest, ties to even; NaN stays NaN.
constexpr bf16 to_bf16(float x) {
  const auto u = std::bit_cast<std::uint32_t>(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return bf16{static_cast<std::uint16_t>((u >> 16) | 0x40u)};
  return bf16{static_cast<std::uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16)};
}

float to_float(f16 x);
f16 to_f16(float x);

template <class T>
constexpr DType dtype_of();
template <>
constexpr DType dtype_of<float>() {
  return DType::kF32;
}
template <>
constexpr DType dtype_of<bf16>() {
  return DType::kBF16;
}
template <>
constexpr DType dtype_of<f16>() {
  return DType::kF16;
}
template <>
constexpr DType dtype_of<std::int32_t>() {
  return DType::kI32;
}
template <>
constexpr DType dtype_of<std::int64_t>() {
  return DType::kI64;
}
template <>
constexpr DType dtype_of<double>() {
  return DType::kF64;
}
template <>
constexpr DType dtype_of<std::uint8_t>() {
  return DType::kU8;
}
template <>
constexpr DType dtype_of<std::int8_t>() {
  return DType::kI8;
}

}  // namespace longstride
