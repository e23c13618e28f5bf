#include "comm/peers.h"

#include <fmt/format.h>

#include <algorithm>

namespace longstride::comm {
namespace {

double seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace

Peers::Peers(int rank, int size, Time now) : rank_(rank), peers_(static_cast<std::size_t>(size)) {
  for (Peer& peer : peers_) peer.heard = peer.advanced = now;
}

void Peers::beat(int rank, std::int64_t progress, int waits_for, Time now) {
  Peer& peer = at(rank);
  // Who stops waiting has got something to do: its time begins anew.
  if (progress != peer.progress || waits_for != peer.waits_for) peer.advanced = now;
  peer.progress = progress;
  peer.waits_for = waits_for;
}

void Peers::forgive(Clock::duration gap) {
  for (Peer& peer : peers_) {
    peer.heard += gap;
    peer.advanced += gap;
  }
}

std::optional<Blamed> Peers::blame(int peer, Clock::duration timeout, Time now) const {
  std::vector<bool> seen(peers_.size(), false);
  seen[static_cast<std::size_t>(rank_)] = true;
  for (int at_rank = peer;;) {
    // Others have waited for this rank while it computed: a circle is one once it waits as long.
    if (at_rank == rank_ && now - at(rank_).advanced < timeout) return std::nullopt;
    if (seen[static_cast<std::size_t>(at_rank)])
      return Blamed{peer, fmt::format("waits for others that wait for it, for {:.0f} s",
                                      seconds(now - at(peer).advanced))};
    seen[static_cast<std::size_t>(at_rank)] = true;
    const Peer& one = at(at_rank);
    if (now - one.heard >= timeout)
      return Blamed{at_rank,
                    fmt::format("has not been heard of for {:.0f} s", seconds(now - one.heard))};
    // What a rank said long ago may be true no more: it will be blamed for its silence, or speak.
    if (now - one.advanced < timeout || now - one.heard >= timeout / 2) return std::nullopt;
    if (one.waits_for < 0)
      return Blamed{at_rank,
                    fmt::format("made no progress for {:.0f} s", seconds(now - one.advanced))};
    at_rank = one.waits_for;
  }
}

int Peers::lowest_alive(Clock::duration silence, Time now) const {
  for (int other = 0; other < rank_; ++other)
    if (!at(other).left && now - at(other).heard < silence) return other;
  return rank_;
}

bool Peers::all_known() const {
  return std::all_of(peers_.begin(), peers_.end(), [](const Peer& peer) { return peer.known(); });
}

bool Peers::all_left() const { return first_present() < 0; }

int Peers::first_present() const {
  for (int other = 0; other < static_cast<int>(peers_.size()); ++other)
    if (other != rank_ && !at(other).left) return other;
  return -1;
}

}  // namespace longstride::comm
