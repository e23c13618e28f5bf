#include "model/side_files.h"

#include <algorithm>
#include <set>
#include <system_error>

#include "base/error.h"
#include "base/files.h"
#include "base/sizes.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;

// Far above any tokenizer file; larger files are refused.
constexpr std::uintmax_t kLargest = std::uintmax_t{256} << 20;

bool is_side_file(const std::string& name) {
  static const std::set<std::string> kNames{"vocab.json", "merges.txt", "special_tokens_map.json",
                                            "added_tokens.json", kGenerationConfig};
  return name.starts_with("tokenizer") || name.starts_with("chat_template") ||
         kNames.contains(name);
}

}  // namespace

std::vector<SideFile> read_side_files(const fs::path& directory) {
  std::vector<SideFile> files;
  for (const auto& entry : fs::directory_iterator(directory)) {
    SideFile file{entry.path().filename().string(), {}};
    std::error_code broken_link;
    if (!is_side_file(file.name) || entry.is_directory(broken_link)) continue;
    try {
      if (fs::file_size(entry.path()) > kLargest)
        throw Error(fmt::format("{} has {}, too much for a file that every save copies",
                                entry.path().string(),
                                format_bytes(static_cast<double>(fs::file_size(entry.path())))),
                    "rename or remove it");
      file.bytes = read_text(entry.path());
    } catch (const fs::filesystem_error& e) {
      throw Error(fmt::format("cannot read {}: {}", entry.path().string(), e.code().message()),
                  "every save copies it: make it readable, or remove it");
    }
    files.push_back(std::move(file));
  }
  std::ranges::sort(files, {}, &SideFile::name);
  return files;
}

}  // namespace longstride
