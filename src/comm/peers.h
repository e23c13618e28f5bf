// Peers: what a rank knows of the others by their beats, and whom it blames when nothing moves.
// Plain logic: times are handed in. Used by the thread that owns the wire alone.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace longstride::comm {

using Clock = std::chrono::steady_clock;
using Time = Clock::time_point;

struct Peer {
  std::string host, process_space;  // empty until it has said hello
  std::int64_t process = 0;
  Time heard{}, advanced{};  // its last note; its last sign of progress
  std::int64_t progress = -1;
  int waits_for = -1;  // -1: it computes
  bool left = false;   // has said that nothing more will come
  bool known() const { return process != 0; }
};

struct Blamed {
  int rank = 0;
  std::string why;  // "has not been heard of for 12 s"
};

class Peers {
 public:
  Peers(int rank, int size, Time now);
  Peer& at(int rank) { return peers_[static_cast<std::size_t>(rank)]; }
  const Peer& at(int rank) const { return peers_[static_cast<std::size_t>(rank)]; }

  void hear(int rank, Time now) { at(rank).heard = now; }
  // Also of this rank itself, before it blames another.
  void beat(int rank, std::int64_t progress, int waits_for, Time now);
  // This process did nothing for so long (it was stopped itself): the others are not to blame.
  void forgive(Clock::duration gap);
  // The calling rank waits for `peer`. Follows who waits for whom to the rank that neither advances
  // nor waits; it is blamed after `timeout`. A rank that waits is not, unless all wait in a circle
  // and say so.
  std::optional<Blamed> blame(int peer, Clock::duration timeout, Time now) const;
  // The lowest rank that is alive, by its beats.
  int lowest_alive(Clock::duration silence, Time now) const;
  bool all_known() const;
  bool all_left() const;
  // The first other rank that has not left; -1 if none.
  int first_present() const;

 private:
  int rank_;
  std::vector<Peer> peers_;
};

}  // namespace longstride::comm
