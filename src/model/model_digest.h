// A short text that tells models apart: of every tensor's name, type,
// shape and a sample of its bytes. Reads a few KiB of each tensor.
#pragma once

#include <string>

#include "model/model_directory.h"

namespace longstride {

std::string model_digest(const ModelDirectory& directory);

}  // namespace longstride
