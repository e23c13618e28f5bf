// The tensors of a model's files, or of an adapter's: one for each parameter, except where a family
// stores several projections in one tensor (Phi: q, k and v in qkv_proj, gate and up in
// gate_up_proj). The parameters are then its rows, one range after the other.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "model/parameters.h"
#include "model/safetensors_writer.h"

namespace longstride {

struct FileTensor {
  std::string name;
  Shape shape;
  std::int64_t first = 0, count = 0;  // its parameters, neighbours in the list
};

// In the order of the parameters. Parameters of one tensor must follow each other and make up all
// of it. With adapters these are the trained parameters alone, under PEFT's names; what is derived
// from others, or a copy of another stage's, is in no file.
std::vector<FileTensor> file_tensors(const std::vector<ParameterSpec>& specs);

// Bytes of all of them.
std::int64_t file_bytes(const std::vector<ParameterSpec>& specs);

bool has_adapters(const std::vector<ParameterSpec>& specs);

// Tensors and the source of their bytes.
struct TensorsToWrite {
  std::vector<TensorToWrite> tensors;
  TensorSource read;
  std::optional<DType> format = {};  // of quantized weights among them
};

// Passes `bytes` bytes of a parameter, from `offset` on, to `sink`.
using ParameterBytes = std::function<void(std::int64_t parameter, std::int64_t offset,
                                          std::int64_t bytes, const ByteSink& sink)>;

// The file tensors that `parameters`, which must outlive the result, holds; those whose parameters
// it does not hold are left out, and a quantized one is several. The calling thread copies them
// from their device, unless they are taken from `copy`.
TensorsToWrite tensors_to_write(const ParameterSet& parameters, ParameterBytes copy = nullptr);

}  // namespace longstride
