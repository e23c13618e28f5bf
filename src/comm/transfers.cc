#include "comm/transfers.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace longstride::comm {

Transfers::Transfers(Wire& wire, std::int64_t part_bytes)
    : wire_(wire), part_bytes_(part_bytes), peers_(static_cast<std::size_t>(wire.size())) {
  LS_CHECK(part_bytes > 0 && part_bytes <= std::int64_t{1} << 30, "parts of {} bytes", part_bytes);
}

void Transfers::start(const Operation& operation) {
  Peer& peer = peers_[static_cast<std::size_t>(operation.peer)];
  if (!operation.sends) {
    peer.receives.push_back(operation);
    ++waiting_;
    match(operation.peer);
    return;
  }
  Note note{NoteKind::kMessage,
            static_cast<std::int32_t>(operation.traffic),
            peer.sent++,
            operation.bytes,
            {}};
  const bool fits = operation.bytes <= kInlineBytes;
  if (fits && operation.bytes > 0)
    note.text.assign(reinterpret_cast<const char*>(operation.source),
                     static_cast<std::size_t>(operation.bytes));
  wire_.send_note(operation.peer, encode(note));
  if (fits)
    finished_.push_back(operation);
  else
    move(operation);
}

void Transfers::arrived(int from, Note note) {
  peers_[static_cast<std::size_t>(from)].messages.push_back(std::move(note));
  match(from);
}

void Transfers::match(int from) {
  Peer& peer = peers_[static_cast<std::size_t>(from)];
  while (!peer.receives.empty() && !peer.messages.empty()) {
    const Operation receive = peer.receives.front();
    const Note message = std::move(peer.messages.front());
    peer.receives.pop_front();
    peer.messages.pop_front();
    --waiting_;
    LS_CHECK(message.a == peer.received, "message {} of rank {} came in place of {}", message.a,
             from, peer.received);
    ++peer.received;
    LS_CHECK(
        message.b == receive.bytes && message.number == static_cast<std::int32_t>(receive.traffic),
        "rank {} sends {} bytes ({}), rank {} expects {} bytes ({}), in message {}", from,
        message.b, name_of(static_cast<Traffic>(message.number)), wire_.rank(), receive.bytes,
        name_of(receive.traffic), message.a);
    if (receive.bytes > kInlineBytes) {
      move(receive);
      continue;
    }
    LS_CHECK(static_cast<std::int64_t>(message.text.size()) == receive.bytes, "{} of {} bytes",
             message.text.size(), receive.bytes);
    if (receive.bytes > 0) std::memcpy(receive.target, message.text.data(), message.text.size());
    finished_.push_back(receive);
  }
}

void Transfers::move(const Operation& operation) {
  Moving moving{operation, {}};
  for (std::int64_t begin = 0; begin < operation.bytes; begin += part_bytes_) {
    const std::int64_t bytes = std::min(part_bytes_, operation.bytes - begin);
    moving.parts.push_back(operation.sends
                               ? wire_.send(operation.peer, operation.source + begin, bytes)
                               : wire_.receive(operation.peer, operation.target + begin, bytes));
  }
  moving_.push_back(std::move(moving));
}

bool Transfers::advance(std::vector<Operation>& finished) {
  bool moved = !finished_.empty();
  finished.insert(finished.end(), finished_.begin(), finished_.end());
  finished_.clear();
  for (Moving& moving : moving_) {
    while (!moving.parts.empty() && wire_.done(moving.parts.front())) {
      moving.parts.pop_front();
      moved = true;
    }
    if (moving.parts.empty()) finished.push_back(moving.operation);
  }
  std::erase_if(moving_, [](const Moving& moving) { return moving.parts.empty(); });
  return moved;
}

void Transfers::cancel() {
  for (Moving& moving : moving_)
    for (const Wire::Request part : moving.parts) wire_.cancel(part);
  moving_.clear();
  finished_.clear();
  for (Peer& peer : peers_) {
    peer.receives.clear();
    peer.messages.clear();
  }
  waiting_ = 0;
}

}  // namespace longstride::comm
