#include "cli/text_table.h"

#include <fmt/format.h>

#include <algorithm>

namespace longstride::cli {

std::string to_text(const TextTable& t) {
  std::vector<std::size_t> widths;
  for (const std::string& cell : t.header) widths.push_back(cell.size());
  for (const std::vector<std::string>& row : t.rows)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string text;
  const auto line = [&](const std::vector<std::string>& row) {
    std::string s;
    for (std::size_t i = 0; i < row.size(); ++i)
      s += fmt::format("{}{:>{}}", i == 0 ? "" : "  ", row[i], widths[i]);
    text += s + "\n";
  };
  line(t.header);
  for (const std::vector<std::string>& row : t.rows) line(row);
  return text;
}

}  // namespace longstride::cli
