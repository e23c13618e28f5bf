// Weights out of safetensors onto a device.
#pragma once

#include "model/parameters.h"
#include "model/safetensors_reader.h"

namespace longstride {

// Copies the tensor of each parameter's name, which must be there with its shape, into `parameters`
// (each of the file's dtype or F32). Throws Error that names tensor and index of the first NaN or
// infinity; the parameters are then good for nothing.
//
// Three things happen at once: the disk reads what is needed next, all threads check, convert and
// stage pieces, and the device copies what was staged before. Staging takes 48 MiB of host memory.
// The calling thread alone uses the device; nothing is under way when this returns.
void load_weights(const SafetensorsReader& reader, ParameterSet& parameters);

}  // namespace longstride
