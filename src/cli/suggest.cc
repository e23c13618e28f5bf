#include "cli/suggest.h"

#include <cctype>
#include <cstdlib>
#include <sstream>
#include <system_error>

namespace longstride::cli {
namespace {

namespace fs = std::filesystem;

fs::path program() {
  std::error_code none;
  const std::string path = fs::read_symlink("/proc/self/exe", none).string();
  const std::string rebuilt = " (deleted)";  // the binary was replaced by a new one
  return path.ends_with(rebuilt) ? path.substr(0, path.size() - rebuilt.size()) : path;
}

// Relative if the path is below the current directory.
std::string from_here(const fs::path& path) {
  std::error_code none;
  const fs::path relative = fs::proximate(path, none);
  if (none || relative.empty() || *relative.begin() == "..") return path.string();
  return relative.string();
}

}  // namespace

std::string shell_word(const std::string& text) {
  bool plain = !text.empty();
  for (const char c : text)
    plain = plain && (std::isalnum(static_cast<unsigned char>(c)) != 0 ||
                      std::string_view("/._-+=:,@%").find(c) != std::string_view::npos);
  if (plain) return text;
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::string program_word() {
  const fs::path path = program();
  if (path.empty()) return "longstride";
  const char* folders = std::getenv("PATH");
  std::istringstream list(folders == nullptr ? "" : folders);
  for (std::string folder; std::getline(list, folder, ':');) {
    std::error_code none;
    if (!folder.empty() && fs::equivalent(fs::path(folder) / "longstride", path, none))
      return "longstride";
  }
  const std::string word = from_here(path);
  return shell_word(word.find('/') == std::string::npos ? "./" + word : word);
}

std::optional<std::string> example_word(const std::string& name) {
  const fs::path folder = program().parent_path();
  // In a package, or in build/PRESET of the sources.
  for (const fs::path& root : {folder, folder.parent_path().parent_path()}) {
    const fs::path file = root / "examples" / name;
    std::error_code none;
    if (!root.empty() && fs::is_regular_file(file, none)) return shell_word(from_here(file));
  }
  return std::nullopt;
}

}  // namespace longstride::cli
