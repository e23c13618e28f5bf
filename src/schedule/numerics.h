// The numerics record: everything that determines the order of arithmetic. Chosen once, saved in
// checkpoints, reused on resume. Given the record, no budget, plan, thread count or timing changes
// a bit of the results.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "tensor/page_codes.h"
#include "tensor/selection.h"

namespace longstride {

enum class Determinism : std::uint8_t {
  kExact,  // the same bits in every run
  kFast,   // allows kernels whose results vary in the last bits
};

struct NumericsRecord {
  std::int64_t chunk_tokens = 0;
  std::int64_t page_tokens = 0;
  std::int64_t head_block_rows = 0;       // rows whose logits the loss head holds at once
  DType compute = DType::kF32;            // type of activations and of attention
  std::optional<DType> kv_codes = {};     // KV pages in 8 bits; nothing: in the type of compute
  DType kv_gradient_dtype = DType::kF32;  // type of gradient pages across chunks
  // One per layer, in place of these two types, which are then those of the first layer; empty: all
  // layers have the same.
  std::vector<PageTypes> layer_pages = {};
  std::int64_t hot_pages = 0;  // of a sparse layer (pages/hot_pages.h)
  Determinism determinism = Determinism::kExact;
  // Gradient of a tied embedding: that of the head is summed apart and added once per step. False
  // in records that are older than this, and where no tied embedding is trained.
  bool tied_apart = false;
  // Groups of a batch, each summed from zero and added in order (train/group_sums.h).
  std::int64_t data_groups = 1;
  SparseLayers sparse = {};
  std::string quantize = {};  // of the projections: "nf4", "int8"; empty: they are not
  std::string device;         // its name
  std::string kernels;  // libraries and their chosen code paths, e.g. OpenBLAS version and core
  // The fastest of several equally valid kernels, found by measuring (ops/kernel_choices.h).
  std::map<std::string, std::string> choices = {};

  bool exact() const { return determinism == Determinism::kExact; }
  PageTypes pages_of(std::int64_t layer) const {
    return layer_pages.empty() ? PageTypes{kv_codes.value_or(compute), kv_gradient_dtype}
                               : layer_pages.at(static_cast<std::size_t>(layer));
  }
  // Of each layer, at least one.
  void set_pages(std::vector<PageTypes> layers);
  bool any_kv_coded() const;
  bool operator==(const NumericsRecord&) const = default;
};

// "exact" or "fast"; nothing for another word.
std::optional<Determinism> determinism_of_word(std::string_view word);
// "mass", "focus" or "oomb"; nothing for another word.
std::optional<Scoring> scoring_of_word(std::string_view word);
// "means" or "outliers"; nothing for another word.
std::optional<Summary> summary_of_word(std::string_view word);

OrderedJson to_json(const SparseLayers& sparse);
// Throws Error if a field is out of range, and Json::exception if it is missing or of another type.
SparseLayers sparse_layers_from(const Json& json);

OrderedJson to_json(const NumericsRecord& record);
// Throws Error naming `where` if a field is missing, of the wrong type, or a count below 1.
NumericsRecord numerics_from_json(const Json& json, const std::string& where);
// The differences, as "chunk_tokens: 1024 here, 512 there; ..."; empty if there are none. Choices
// are not compared, because a resumed run reuses those of the record.
std::string describe_difference(const NumericsRecord& here, const NumericsRecord& there);

}  // namespace longstride
