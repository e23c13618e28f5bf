#include "base/output_file.h"

#include <algorithm>
#include <system_error>

#include "base/error.h"
#include "base/files.h"

namespace longstride {

void check_output_file(const std::filesystem::path& path, const OutputKind& kind) {
  check_file_writable(path);
  std::error_code none;
  if (!std::filesystem::exists(path, none)) return;
  const MappedFile file(path);
  const auto bytes = file.bytes();
  const std::string_view head(reinterpret_cast<const char*>(bytes.data()),
                              std::min(bytes.size(), kind.head_bytes));
  if (head.empty() || kind.is_ours(head)) return;
  throw Error(fmt::format("{} {} exists and is not {}", kind.option, path.string(), kind.what),
              "choose another file, or move this one away");
}

}  // namespace longstride
