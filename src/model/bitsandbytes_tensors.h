// A quantized weight in safetensors as bitsandbytes and transformers store it: several tensors,
// beside the one of the weight's name. They and a record of tensor/block_formats.h hold the same
// bytes.
//
//   NF4   NAME.weight (U8 [ceil(n/2), 1]), NAME.weight.absmax, NAME.weight.quant_map,
//         NAME.weight.quant_state.bitsandbytes__nf4 (a JSON text), and for scales of 8 bits
//         NAME.weight.nested_absmax, NAME.weight.nested_quant_map
//   int8  NAME.weight (I8 [O, I]), NAME.SCB, NAME.weight_format (0: by rows)
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "model/safetensors_reader.h"
#include "model/safetensors_writer.h"
#include "tensor/view.h"

namespace longstride {

// The block format of weight `name` ("....weight") in the file; nothing if it is a plain tensor.
// Throws Error for a format that is not supported.
std::optional<DType> quantized_format(const SafetensorsReader& reader, const std::string& name);

// The names of the tensors beside it.
std::vector<std::string> companions(const std::string& name, DType format);

// Throws Error, naming file and tensor, unless its tensors are complete, of the right types and
// shapes, with the tables and block sizes of the format.
void check_quantized(const SafetensorsReader& reader, const std::string& name, DType format,
                     const Shape& shape);

// Its record. It must have been checked. Throws Error if a scale is not finite.
std::vector<std::byte> read_record(const SafetensorsReader& reader, const std::string& name,
                                   DType format, const Shape& shape);

// A tensor to write: a part of the record, or bytes that do not depend on it.
struct RecordTensor {
  TensorToWrite tensor;
  std::int64_t offset = 0, bytes = 0;    // in the record
  std::vector<std::byte> constant = {};  // if not empty: these instead
};
// `nested_offset`: the record's, for kNf4. `dtype`: the weight's before it was quantized, which
// readers widen it to.
std::vector<RecordTensor> record_tensors(const std::string& name, DType format, const Shape& shape,
                                         float nested_offset, DType dtype);

// The entry quantization_config of a config.json beside such tensors.
Json quantization_json(DType format, DType dtype);

}  // namespace longstride
