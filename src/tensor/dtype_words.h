// The names of floating-point types in settings, options and records: "f32", "bf16", "f16".
#pragma once

#include <optional>
#include <string_view>

#include "tensor/dtype.h"

namespace longstride {

constexpr std::string_view word_of(DType t) {
  switch (t) {
    case DType::kF32:
      return "f32";
    case DType::kBF16:
      return "bf16";
    case DType::kF16:
      return "f16";
    default:
      return "?";
  }
}

constexpr std::optional<DType> dtype_of_word(std::string_view word) {
  for (const DType t : {DType::kF32, DType::kBF16, DType::kF16})
    if (word_of(t) == word) return t;
  return std::nullopt;
}

// Of pages in 8 bits (tensor/page_codes.h).
constexpr std::optional<DType> page_code_of_word(std::string_view word) {
  if (word == "fp8") return DType::kF8E4M3;
  if (word == "int8") return DType::kI8;
  return std::nullopt;
}

// Of gradient pages: "f32", "bf16" or a code.
constexpr std::optional<DType> gradient_page_type_of_word(std::string_view word) {
  if (word == "f32") return DType::kF32;
  if (word == "bf16") return DType::kBF16;
  return page_code_of_word(word);
}

constexpr std::string_view word_of_pages(DType t) {
  return t == DType::kF8E4M3 ? "fp8" : t == DType::kI8 ? "int8" : word_of(t);
}

}  // namespace longstride
