#include "comm/transfers.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/trace_spans.h"

namespace longstride::comm {

Transfers::Transfers(Wire& wire, std::int64_t part_bytes)
    : wire_(wire), part_bytes_(part_bytes), peers_(static_cast<std::size_t>(wire.size())) {
  LS_CHECK(part_bytes > 0 && part_bytes <= std::int64_t{1} << 30, "parts of {} bytes", part_bytes);
}

void Transfers::start(const Operation& operation) {
  Channel& on = channel(operation.peer, operation.traffic);
  LS_CHECK(operation.traffic != Traffic::kVote || operation.bytes <= kInlineBytes,
           "a vote of {} bytes", operation.bytes);
  if (!operation.sends) {
    on.receives.push_back(operation);
    ++waiting_;
    match(operation.peer, on);
    return;
  }
  Note note{NoteKind::kMessage,
            static_cast<std::int32_t>(operation.traffic),
            on.sent++,
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
  LS_CHECK(note.number >= 0 && note.number < kTraffics, "traffic {}", note.number);
  Channel& on = channel(from, static_cast<Traffic>(note.number));
  on.messages.push_back(std::move(note));
  match(from, on);
}

bool Transfers::withdraw(std::uint64_t ticket) {
  for (Peer& peer : peers_)
    for (Channel& on : peer)
      if (std::erase_if(on.receives, [&](const Operation& o) { return o.ticket == ticket; }) > 0) {
        --waiting_;
        return true;
      }
  return false;
}

void Transfers::match(int from, Channel& on) {
  while (!on.receives.empty() && !on.messages.empty()) {
    const Operation receive = on.receives.front();
    const Note message = std::move(on.messages.front());
    on.receives.pop_front();
    on.messages.pop_front();
    --waiting_;
    LS_CHECK(message.a == on.received, "message {} of rank {} came in place of {}", message.a, from,
             on.received);
    ++on.received;
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
  Moving moving{operation, {}, trace_spans().on() ? trace_clock_ns() : 0};
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
    if (!moving.parts.empty()) continue;
    const Operation& operation = moving.operation;
    finished.push_back(operation);
    if (moving.begin_ns > 0 && trace_spans().on())
      trace_spans().add({TraceTrack::kMessages,
                         {.what = operation.sends ? "send to rank" : "receive from rank",
                          .number = operation.peer,
                          .bytes = operation.bytes},
                         moving.begin_ns,
                         trace_clock_ns()});
  }
  std::erase_if(moving_, [](const Moving& moving) { return moving.parts.empty(); });
  return moved;
}

void Transfers::cancel() {
  for (Moving& moving : moving_)
    for (const Wire::Request part : moving.parts) wire_.cancel(part);
  moving_.clear();
  finished_.clear();
  for (Peer& peer : peers_)
    for (Channel& on : peer) {
      on.receives.clear();
      on.messages.clear();
    }
  waiting_ = 0;
}

}  // namespace longstride::comm
