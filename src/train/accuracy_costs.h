// What the settings of a run that save memory cost in accuracy: the measured figures of
// docs/sparse.md, which a test compares with these.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tensor/dtype.h"
#include "train/run_plan.h"

namespace longstride {

// Chunks of the sequences that errors were measured on.
inline constexpr std::array<std::int64_t, 4> kMeasuredChunks = {16, 64, 256, 1024};

// By how much gradients differ from those with wide pages (keys and values in the type of compute,
// gradients in F32), if pages of one kind have this type.
struct PageError {
  // Keys and values of all layers but the first, of all layers, or gradients.
  enum class Pages : std::uint8_t { kKeys, kAllKeys, kGradients };

  bool sparse = false;  // the layers; else dense
  Pages pages = Pages::kKeys;
  DType type = DType::kI8;
  // Relative, in percent, of the kind of parameter where it is largest; by kMeasuredChunks. A
  // negative one was not measured.
  std::array<double, 4> percent = {};
  // Above 5% at some length, or at the next one if it grows on as it did.
  bool experimental() const;
  bool gradients() const { return pages == Pages::kGradients; }
};
std::span<const PageError> page_errors();

// A line for every setting of the run that changes its results for the sake of memory.
std::vector<std::string> accuracy_costs(const RunPlan& plan);

}  // namespace longstride
