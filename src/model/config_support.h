// Which fields of a config.json are understood, which are refused, and which are merely unknown.
#pragma once

#include <span>
#include <string_view>

#include "model/config.h"
#include "model/config_fields.h"

namespace longstride {

// Throws Error for an unsupported field that would change the result. Warns, once per process and
// file, about unknown fields that have a value. Null, false, 0 and empty values pass silently.
void check_supported(const Fields& fields, Architecture architecture);

// The warning alone, for an object whose known fields are `known`.
void warn_unknown(const Fields& fields, std::span<const std::string_view> known);

// True for null, false, 0 and empty values.
bool is_unset(const Json& value);

}  // namespace longstride
