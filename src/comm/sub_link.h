// SubLink: some ranks of a link as a group of their own, such as the stages of one pipeline or the
// ranks that hold the same stage. All of its messages are the link's.
#pragma once

#include <vector>

#include "comm/link.h"

namespace longstride::comm {

// `whole` outlives it. Messages between two ranks keep one order over all groups that both are in.
class SubLink final : public Link {
 public:
  // Rank r of the group is rank members[r] of `whole`. The calling rank is a member, and all
  // members give the same list.
  SubLink(Link& whole, std::vector<int> members);

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(members_.size()); }
  bool moves(MemoryKind kind) const override { return whole_.moves(kind); }
  bool done(Ticket ticket) override { return whole_.done(ticket); }
  void wait(Ticket ticket) override { whole_.wait(ticket); }
  bool withdraw(Ticket ticket) override { return whole_.withdraw(ticket); }
  void wait_on_stream(Ticket ticket) override { whole_.wait_on_stream(ticket); }
  void abandon() noexcept override { whole_.abandon(); }
  ByteCounters counters() const override { return whole_.counters(); }  // of all groups

  Ticket start_send(int to, SendBuffer buffer, Traffic traffic) override;
  Ticket start_receive(int from, ReceiveBuffer buffer, Traffic traffic) override;

 private:
  int member(int rank) const;

  Link& whole_;
  std::vector<int> members_;
  int rank_ = -1;
};

}  // namespace longstride::comm
