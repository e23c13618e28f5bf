#include "comm/notes.h"

#include <cstring>

#include "base/error.h"

namespace longstride::comm {
namespace {

struct Head {
  NoteKind kind;
  std::int32_t number;
  std::int64_t a, b;
};

}  // namespace

std::vector<std::byte> encode(const Note& note) {
  const Head head{note.kind, note.number, note.a, note.b};
  std::vector<std::byte> bytes(sizeof(Head) + note.text.size());
  std::memcpy(bytes.data(), &head, sizeof(Head));
  if (!note.text.empty())
    std::memcpy(bytes.data() + sizeof(Head), note.text.data(), note.text.size());
  return bytes;
}

Note decode(const std::vector<std::byte>& bytes) {
  LS_CHECK(bytes.size() >= sizeof(Head), "a note of {} bytes", bytes.size());
  Head head;
  std::memcpy(&head, bytes.data(), sizeof(Head));
  LS_CHECK(head.kind <= NoteKind::kBye, "a note of kind {}", static_cast<std::uint32_t>(head.kind));
  return {head.kind, head.number, head.a, head.b,
          std::string(reinterpret_cast<const char*>(bytes.data()) + sizeof(Head),
                      bytes.size() - sizeof(Head))};
}

}  // namespace longstride::comm
