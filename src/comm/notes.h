// Notes: the small messages by which the owners of links speak to each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace longstride::comm {

enum class NoteKind : std::uint32_t {
  kHello,    // a: process, text: host and space of process numbers
  kMessage,  // number: traffic, a: sequence, b: bytes; text: the bytes, if they are few
  kBeat,     // number: the rank that it waits for or -1, a: progress, b: what it is to stop by
  kFailed,   // number: status, text: why
  kAsk,      // may I tell the user?
  kAnswer,   // number: 1 yes, 0 another rank does
  kBye,      // nothing more will come
};

struct Note {
  NoteKind kind = NoteKind::kBeat;
  std::int32_t number = 0;
  std::int64_t a = 0, b = 0;
  std::string text;
};

std::vector<std::byte> encode(const Note& note);
// LS_CHECKs that it is one.
Note decode(const std::vector<std::byte>& bytes);

}  // namespace longstride::comm
