// Ranks as threads over NCCL's strict twin, for what training sends in device memory.
#pragma once

#include <gtest/gtest.h>

#include <exception>
#include <functional>
#include <set>

#include "tests/comm/nccl_ranks.h"

namespace longstride::comm {

// The tests compute on the host, where a stream cannot wait for them.
class HostWaits final : public Link {
 public:
  explicit HostWaits(Link& link) : link_(link) {}
  int rank() const override { return link_.rank(); }
  int size() const override { return link_.size(); }
  bool moves(MemoryKind kind) const override { return link_.moves(kind); }
  bool done(Ticket ticket) override { return link_.done(ticket); }
  void wait(Ticket ticket) override {
    link_.wait(ticket);
    under_way_.erase(ticket.number);
  }
  void wait_on_stream(Ticket ticket) override { wait(ticket); }
  bool withdraw(Ticket ticket) override { return link_.withdraw(ticket); }
  void abandon() noexcept override { link_.abandon(); }
  ByteCounters counters() const override { return link_.counters(); }
  Ticket start_send(int to, SendBuffer buffer, Traffic traffic) override {
    EXPECT_EQ(buffer.memory, MemoryKind::kDevice);
    return started(link_.start_send(to, buffer, traffic));
  }
  Ticket start_receive(int from, ReceiveBuffer buffer, Traffic traffic) override {
    return started(link_.start_receive(from, buffer, traffic));
  }
  // Messages that nobody has waited for.
  std::size_t under_way() const { return under_way_.size(); }

 private:
  Ticket started(Ticket ticket) {
    under_way_.insert(ticket.number);
    return ticket;
  }
  Link& link_;
  std::set<std::uint64_t> under_way_;
};

// Calls body on so many ranks. Nothing is thrown, and the twin has nothing to complain about.
inline void run_twin_ranks(int ranks, const std::function<void(Link&)>& body) {
  LinkOptions options;
  options.timeout_seconds = 30;
  NcclOptions nccl{.lanes = all_lanes(ranks)};
  for (const std::exception_ptr& why : run_nccl_ranks(
           ranks, options,
           [&](const NcclRank& rank) {
             HostWaits link(rank.link);
             body(link);
             EXPECT_EQ(link.under_way(), 0U);
           },
           &nccl))
    EXPECT_EQ(what_was_thrown(why), "nothing");
  EXPECT_STREQ(twin().violations(), "");
}

}  // namespace longstride::comm
