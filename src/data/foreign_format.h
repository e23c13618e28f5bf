// Detects files of other formats in place of raw numbers, which would be read as garbage.
#pragma once

#include <string>

#include "data/data_file.h"

namespace longstride {

// Throws Error, naming the format and how to convert it, if the file begins like .npy, a zip
// archive (.npz, .pt), safetensors, Parquet, Arrow, HDF5, gzip, zstd, a Megatron index, or text.
// `what` names the expected contents ("tokens"), of NumPy's type `numpy_type` ("<u4").
void check_not_foreign(const DataFile& file, const std::string& what,
                       const std::string& numpy_type);

}  // namespace longstride
