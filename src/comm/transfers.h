// Transfers: the messages of a link under way, as notes and parts on a wire. Matches arriving
// messages with receives, checks their sizes, cuts them into parts. Used by the thread that owns
// the wire alone.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "comm/link.h"
#include "comm/notes.h"
#include "comm/wire.h"

namespace longstride::comm {

struct Operation {
  std::uint64_t ticket = 0;
  bool sends = false;
  int peer = 0;
  const std::byte* source = nullptr;
  std::byte* target = nullptr;
  std::int64_t bytes = 0;
  Traffic traffic = Traffic::kMessage;
};

class Transfers {
 public:
  // Messages above kInlineBytes go in parts of `part_bytes`.
  Transfers(Wire& wire, std::int64_t part_bytes);
  static constexpr std::int64_t kInlineBytes = kMostVoteBytes;

  void start(const Operation& operation);
  // A note of kind kMessage. LS_CHECKs sizes and traffic.
  void arrived(int from, Note note);
  // Forgets a receive that no message has come for; false: there is none with this ticket.
  bool withdraw(std::uint64_t ticket);
  // Adds operations that are done to `finished`. Returns whether anything has moved.
  bool advance(std::vector<Operation>& finished);
  bool idle() const { return waiting_ == 0 && moving_.empty() && finished_.empty(); }
  // Nothing is done any more, and no buffer written.
  void cancel();

 private:
  struct Moving {
    Operation operation;
    std::deque<Wire::Request> parts;
    std::uint64_t begin_ns = 0;  // for a trace
  };
  // Messages of a channel keep their order. Votes have one of their own; they are never cut into
  // parts, of which a wire has one order between two ranks.
  struct Channel {
    std::int64_t sent = 0, received = 0;  // messages
    std::deque<Operation> receives;       // without a message
    std::deque<Note> messages;            // without a receive
  };
  using Peer = std::array<Channel, 2>;
  Channel& channel(int peer, Traffic traffic) {
    return peers_[static_cast<std::size_t>(peer)][traffic == Traffic::kVote ? 1 : 0];
  }
  void match(int from, Channel& channel);
  void move(const Operation& operation);

  Wire& wire_;
  std::int64_t part_bytes_;
  std::vector<Peer> peers_;
  std::int64_t waiting_ = 0;  // receives without a message
  std::deque<Moving> moving_;
  std::vector<Operation> finished_;
};

}  // namespace longstride::comm
