#include "base/json_depth.h"

#include "base/error.h"

namespace longstride {

void check_json_depth(std::string_view text, const std::string& where) {
  constexpr int kDeepest = 100;
  int depth = 0;
  bool in_text = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_text && c == '\\') {
      ++i;  // an escaped character does not end the string
    } else if (c == '"') {
      in_text = !in_text;
    } else if (!in_text && (c == '[' || c == '{')) {
      if (++depth > kDeepest)
        throw Error(
            fmt::format("{}: not valid JSON: nested deeper than {} levels", where, kDeepest),
            "the file is damaged, or not one of a model; restore it");
    } else if (!in_text && (c == ']' || c == '}')) {
      --depth;
    }
  }
}

}  // namespace longstride
