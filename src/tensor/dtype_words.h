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

}  // namespace longstride
