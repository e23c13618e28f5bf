// Loads weights from safetensors onto a device.
#pragma once

#include "model/parameters.h"
#include "model/safetensors_reader.h"

namespace longstride {

// Copies the tensor of each parameter (or its rows of one), which must exist with its shape, into
// `parameters`, but not adapters and what is derived from them. Each is of the file's dtype or F32;
// or of a block format: then a plain tensor is quantized, one at a time through a temporary one on
// the device, and a quantized one must be of the same format.
// Throws Error that names tensor and index of the first NaN or infinity; the parameters are then
// undefined.
//
// Read-ahead from disk, checking and converting into staging buffers (on all threads), and copies
// to the device overlap. Staging takes 48 MiB of host memory. Only the calling thread uses the
// device; no copy is in flight when this returns.
void load_weights(const SafetensorsReader& reader, ParameterSet& parameters);

}  // namespace longstride
