// The numerics record: everything that decides the order of arithmetic. Chosen once, saved in
// checkpoints, replayed on resume. Given the record, no budget, plan, thread count or timing
// changes a bit.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "tensor/dtype.h"

namespace longstride {

enum class Determinism : std::uint8_t {
  kExact,  // the same bits in every run
  kFast,   // kernels that do not repeat bit for bit may be used
};

struct NumericsRecord {
  std::int64_t chunk_tokens = 0;
  std::int64_t page_tokens = 0;
  std::int64_t head_block_rows = 0;       // rows of the loss head whose logits exist at once
  DType compute = DType::kF32;            // type of activations and KV pages
  DType kv_gradient_dtype = DType::kF32;  // type of gradient pages across chunks
  Determinism determinism = Determinism::kExact;
  std::string device;   // its name
  std::string kernels;  // libraries and their chosen code paths, e.g. OpenBLAS version and core
  // Among equally right ways to compute, those found quickest by measuring (ops/kernel_choices.h).
  std::map<std::string, std::string> choices = {};

  bool exact() const { return determinism == Determinism::kExact; }
  bool operator==(const NumericsRecord&) const = default;
};

// "exact" or "fast"; nothing for another word.
std::optional<Determinism> determinism_of_word(std::string_view word);

OrderedJson to_json(const NumericsRecord& record);
// Throws Error naming `where` if a field is missing, of the wrong type, or a count below 1.
NumericsRecord numerics_from_json(const Json& json, const std::string& where);
// What differs, as "chunk_tokens: 1024 here, 512 there; ..."; empty where nothing does. Choices are
// not compared: they are replayed.
std::string describe_difference(const NumericsRecord& here, const NumericsRecord& there);

}  // namespace longstride
