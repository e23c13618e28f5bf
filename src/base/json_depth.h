// How deeply JSON may be nested.
#pragma once

#include <string>
#include <string_view>

namespace longstride {

// Throws Error where lists and objects are nested deeper than any file of ours: the library copies
// and prints a value by recursion, and a hostile one would end the stack. parse_json has called it.
void check_json_depth(std::string_view text, const std::string& where);

}  // namespace longstride
