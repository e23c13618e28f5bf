// How deeply JSON may be nested.
#pragma once

#include <string>
#include <string_view>

namespace longstride {

// Throws Error if lists and objects are nested deeper than in any of the program's files: the
// library copies and prints values by recursion, so a hostile one would overflow the stack.
// parse_json calls it.
void check_json_depth(std::string_view text, const std::string& where);

}  // namespace longstride
