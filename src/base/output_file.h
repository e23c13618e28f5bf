// Files that the user names for us to write: nothing of another's is replaced by them.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace longstride {

// What an option writes, and how an earlier file of that kind is known.
struct OutputKind {
  std::string option;  // "--trace", for messages
  std::string what;    // "a trace"
  // Whether a file that begins so is one of ours. It gets the first `head_bytes` of a file, or all
  // of a shorter one.
  std::function<bool(std::string_view head)> is_ours;
  std::size_t head_bytes = 4096;
};

// Throws Error where `path` cannot be written, or where there is a file that is not ours; an empty
// one may be replaced. To be called before work begins; leaves nothing behind.
void check_output_file(const std::filesystem::path& path, const OutputKind& kind);

}  // namespace longstride
