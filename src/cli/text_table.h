// A table of cells as text, its columns aligned to the right.
#pragma once

#include <string>
#include <vector>

namespace longstride::cli {

struct TextTable {
  std::vector<std::string> header;
  std::vector<std::vector<std::string>> rows;  // each as long as the header
};
std::string to_text(const TextTable& table);

}  // namespace longstride::cli
