#include "comm/launch.h"

#include <gtest/gtest.h>

#include <map>

#include "base/error.h"
#include "comm/link_check.h"
#include "comm/thread_link.h"

namespace longstride::comm {
namespace {

Launch launch_with(const std::map<std::string, std::string>& environment) {
  return read_launch([&](const char* name) -> const char* {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  });
}

TEST(Launch, TheEnvironmentSaysWhoStartedUs) {
  EXPECT_FALSE(launch_with({}).several());
  const Launch mpirun = launch_with(
      {{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", "3"}, {"PMIX_RANK", "3"}});
  EXPECT_EQ(mpirun.started_by, "mpirun");
  EXPECT_EQ(mpirun.rank, 3);
  EXPECT_EQ(mpirun.size, 4);
  const Launch srun = launch_with({{"SLURM_NTASKS", "8"}, {"PMIX_RANK", "5"}});
  EXPECT_EQ(srun.started_by, "srun");
  EXPECT_EQ(srun.rank, 5);
  EXPECT_EQ(srun.size, 8);
  EXPECT_EQ(launch_with({{"SLURM_NTASKS", "2"}, {"PMI_RANK", "1"}}).size, 2);
}

TEST(Launch, ASingleProcessNeedsNoMpi) {
  EXPECT_FALSE(
      launch_with({{"OMPI_COMM_WORLD_SIZE", "1"}, {"OMPI_COMM_WORLD_RANK", "0"}}).several());
  EXPECT_FALSE(launch_with({{"SLURM_NTASKS", "1"}, {"PMIX_RANK", "0"}}).several());
  // A batch script of several tasks runs its commands once.
  EXPECT_FALSE(launch_with({{"SLURM_NTASKS", "8"}}).several());
  EXPECT_FALSE(launch_with({{"OMPI_COMM_WORLD_SIZE", "many"}}).several());
}

// Rank 2 of 3 has `other`; returns what the ranks throw.
std::vector<std::string> messages(const SameEverywhere& usual, const SameEverywhere& other) {
  ThreadHub hub(3);
  LinkOptions options;
  options.host = "node7";
  std::vector<std::string> texts;
  for (const std::exception_ptr& why : run_thread_ranks(hub, options, [&](MessageLink& link) {
         check_same(link, link.rank() == 2 ? other : usual);
       })) {
    texts.emplace_back();
    try {
      if (why != nullptr) std::rethrow_exception(why);
    } catch (const Error& e) {
      texts.back() = std::string("Error: ") + e.what();
    } catch (const RankFailed& e) {
      EXPECT_EQ(e.status(), 2);
      texts.back() = "quiet";
    }
  }
  EXPECT_FALSE(hub.aborted());
  return texts;
}

TEST(Launch, UnequalRanksAreRefusedByRankZero) {
  const SameEverywhere usual{"0.1.0", "a = 1", "H200"};
  using Texts = std::vector<std::string>;
  EXPECT_EQ(messages(usual, usual), (Texts{"", "", ""}));
  EXPECT_EQ(messages(usual, {"0.2.0", "a = 1", "H200"}),
            (Texts{"Error: rank 2 on node7 is longstride 0.2.0, rank 0 on node7 is 0.1.0", "quiet",
                   "quiet"}));
  EXPECT_EQ(messages(usual, {"0.1.0", "a = 2", "H200"}),
            (Texts{"Error: rank 2 on node7 has another configuration than rank 0 on node7", "quiet",
                   "quiet"}));
  EXPECT_EQ(
      messages(usual, {"0.1.0", "a = 1", "H100"}),
      (Texts{"Error: rank 2 on node7 has another device than rank 0 on node7", "quiet", "quiet"}));
}

// A link that damages one byte of what it receives from another rank, in one kind of operation.
class DamagingLink final : public Link {
 public:
  DamagingLink(Link& link, Traffic damaged) : link_(link), damaged_(damaged) {}
  int rank() const override { return link_.rank(); }
  int size() const override { return link_.size(); }
  bool moves(MemoryKind kind) const override { return link_.moves(kind); }
  bool done(Ticket ticket) override { return link_.done(ticket); }
  void wait(Ticket ticket) override {
    link_.wait(ticket);
    if (ticket.number == damaged_ticket_) damaged_buffer_.data[0] ^= std::byte{1};
  }
  bool withdraw(Ticket ticket) override { return link_.withdraw(ticket); }
  void abandon() noexcept override { link_.abandon(); }
  ByteCounters counters() const override { return link_.counters(); }
  Ticket start_send(int to, SendBuffer buffer, Traffic /*traffic*/) override {
    return link_.send(to, buffer);
  }
  Ticket start_receive(int from, ReceiveBuffer buffer, Traffic traffic) override {
    const Ticket ticket = link_.receive(from, buffer);
    if (traffic == damaged_ && damaged_ticket_ == 0 && from != rank() && buffer.bytes > 0) {
      damaged_ticket_ = ticket.number;
      damaged_buffer_ = buffer;
    }
    return ticket;
  }

 private:
  Link& link_;
  Traffic damaged_;
  std::uint64_t damaged_ticket_ = 0;
  ReceiveBuffer damaged_buffer_;
};

TEST(LinkCheck, NoticesOneWrongByteInEveryOperation) {
  for (const Traffic traffic :
       {Traffic::kMessage, Traffic::kAllToAll, Traffic::kAllGather, Traffic::kBroadcast}) {
    ThreadHub hub(3);
    int noticed = 0;
    for (const std::exception_ptr& why : run_thread_ranks(hub, {}, [&](MessageLink& link) {
           DamagingLink damaging(link, link.rank() == 1 ? traffic : Traffic::kBarrier);
           check_link(damaging, 5000);
         })) {
      try {
        if (why != nullptr) std::rethrow_exception(why);
      } catch (const Error& e) {
        ++noticed;
        EXPECT_NE(std::string(e.what()).find("rank 1 received other bytes"), std::string::npos);
      } catch (const RankFailed&) {
      }
    }
    EXPECT_EQ(noticed, 1) << name_of(traffic);
  }
}

TEST(LinkCheck, AGoodLinkPasses) {
  for (const int ranks : {2, 3, 4}) {
    ThreadHub hub(ranks);
    for (const std::exception_ptr& why : run_thread_ranks(hub, {}, [](MessageLink& link) {
           for (const std::int64_t bytes : {0, 1, 4097, 1000003}) check_link(link, bytes);
         }))
      EXPECT_EQ(why, nullptr);
  }
}

}  // namespace
}  // namespace longstride::comm
