#include "model/written_file.h"

#include <string>

#include "base/files.h"

namespace longstride {

WrittenFile write_bytes(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  FileWriter writer(path);
  writer.write(bytes);
  writer.finish();
  return {path.filename().string(), static_cast<std::int64_t>(writer.bytes_written()),
          writer.checksum()};
}

WrittenFile write_json(const std::filesystem::path& path, const Json& json) {
  const std::string text = json.dump(2) + "\n";
  return write_bytes(path, std::as_bytes(std::span(text)));
}

}  // namespace longstride
