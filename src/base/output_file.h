// Output files that the user names: a file the program did not write is never overwritten.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace longstride {

// What an option writes, and how to recognize an earlier file of that kind.
struct OutputKind {
  std::string option;  // "--trace", for messages
  std::string what;    // "a trace"
  // Whether the program wrote the file that begins with `head`: its first `head_bytes`, or all of a
  // shorter file.
  std::function<bool(std::string_view head)> is_ours;
  std::size_t head_bytes = 4096;
};

// Throws Error if `path` cannot be written, or holds a file that the program did not write; an
// empty file may be replaced. Call it before work begins; it leaves nothing behind.
void check_output_file(const std::filesystem::path& path, const OutputKind& kind);

}  // namespace longstride
