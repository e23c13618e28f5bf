// Any text as a checkpoint's state.json, without its last line: an Error, or a state that a run may
// go on from.
#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "base/files.h"
#include "train/checkpoint_state.h"

namespace {

void check(bool holds) {
  if (!holds) std::abort();
}

// True where the text was taken.
bool read(const std::string& text) {
  try {
    const longstride::SavedState saved = longstride::parse_state_text(text, "fuzz/step-1");
    check(saved.state.step >= 0 && saved.state.data_position >= 0);
    check(saved.state.numerics.chunk_tokens > 0 && saved.state.numerics.page_tokens > 0);
    check(saved.state.config.is_object());
    check(!saved.state.config.dump().empty());
    for (const longstride::ListedFile& file : saved.files) check(file.bytes >= 0);
    return true;
  } catch (const longstride::Error&) {
    return false;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  // Nobody guesses a checksum, so the right one is added; any other ends it.
  const std::uint64_t checksum = longstride::checksum_of_text(text);
  read(text + fmt::format("{:016x}\n", checksum));
  check(!read(text + fmt::format("{:016x}\n", checksum ^ 1)));
  return 0;
}
