// Which fields of an adapter_config.json are understood, which are refused, and which are merely
// unknown.
#pragma once

#include "model/config_fields.h"

namespace longstride {

// Throws Error for an unsupported field that would change the result. Warns, once per process and
// file, about unknown fields that have a value.
void check_adapter_supported(const Fields& fields);

}  // namespace longstride
