// NcclLink: messages in device memory by NCCL, everything else by the MessageLink beneath, which
// also watches the ranks: one that fails, dies or hangs ends NCCL's messages on all others.
//
// Lanes: messages from one rank to another run on a lane of their own, a communicator of two ranks
// with a stream. So a message waits for its counterpart and for nothing else, whatever the order in
// which ranks send and receive, as a Link promises; NCCL alone serves the messages of a
// communicator one after the other, and two ranks that both send first would wait for ever. Which
// lanes there are is said when the link is opened, and their first message is sent then, so that
// NCCL's memory is taken before anything is planned.
//
// Order: messages in device memory keep their order between two ranks; those in other memory keep
// theirs, apart from the former. NCCL does not compare sizes: if the receiver names another than
// the sender, the ranks hang until the timeout.
//
// Streams: a message begins after all that the device's stream was given before the call.
// wait(ticket) makes the caller wait, wait_on_stream(ticket) the device's stream: what it is given
// from then on comes after the message. Either must be called before a received buffer is read, or
// a buffer that is sent is written again.
//
// Threads: one at a time calls, as with every link. A thread of its own looks at NCCL and at the
// ranks ten times a second, and ends NCCL's messages after a failure even if the caller waits for
// the device.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "comm/message_link.h"
#include "comm/nccl_lane.h"

namespace longstride::comm {

struct NcclOptions {
  // From the first rank to the second; a rank to itself is allowed. The same on all ranks.
  std::vector<std::pair<int, int>> lanes;
  // Whether all_to_all, all_gather and broadcast have a communicator of all ranks; without it they
  // go over lanes.
  bool collectives = false;
  double timeout_seconds = 600;  // for NCCL to connect
};
// Between all pairs, each rank and itself too.
std::vector<std::pair<int, int>> all_lanes(int ranks);
// Of so many pipelines, one after the other in the order of ranks: between neighbouring stages and
// between the first and the last, in both directions; between ranks with the same stage, and each
// of them and itself.
std::vector<std::pair<int, int>> pipeline_lanes(int stages, int pipelines = 1);

class NcclLink final : public Link {
 public:
  // All ranks call it. Throws Error if NCCL cannot connect them within the timeout, RankFailed if
  // another rank fails meanwhile. `beneath` and the library must outlive it.
  NcclLink(const NcclLibrary& library, std::unique_ptr<LinkStreams> streams, MessageLink& beneath,
           const NcclOptions& options);
  NcclLink(const NcclLink&) = delete;
  NcclLink& operator=(const NcclLink&) = delete;
  // Without close(): ends messages under way.
  ~NcclLink() override;

  int rank() const override { return beneath_.rank(); }
  int size() const override { return beneath_.size(); }
  bool moves(MemoryKind /*kind*/) const override { return true; }
  bool done(Ticket ticket) override;
  void wait(Ticket ticket) override;
  void wait_on_stream(Ticket ticket) override;
  // Never a message in device memory: NCCL cannot.
  bool withdraw(Ticket ticket) override;
  void abandon() noexcept override;
  // In device memory if any buffer is; then all are, on all ranks, empty ones apart.
  void all_to_all(std::span<const SendBuffer> to, std::span<const ReceiveBuffer> from) override;
  void all_gather(SendBuffer mine, std::span<const ReceiveBuffer> from) override;
  void broadcast(int root, ReceiveBuffer buffer) override;
  void barrier() override { beneath_.barrier(); }
  // Those of the link beneath too. Messages in device memory count when they begin.
  ByteCounters counters() const override;

  Ticket start_send(int to, SendBuffer buffer, Traffic traffic) override;
  Ticket start_receive(int from, ReceiveBuffer buffer, Traffic traffic) override;

  // All ranks call it when their messages are done: the orderly end of NCCL. The link beneath stays
  // open.
  void close();

 private:
  using Part = NcclLane::Part;
  // Lanes of this rank by their place in `lanes_`.
  struct Lane {
    std::unique_ptr<NcclLane> lane;
    int from = 0, to = 0;       // ranks of the link; of all ranks: -1
    int peer = -1;              // whom this rank waits for
    std::deque<Part> waiting;   // to itself: those whose counterpart has not been posted
    std::uint64_t posted[2]{};  // to itself: receives, sends
    std::uint64_t passed = 0;   // launches, when the watcher last looked
    Time since{};               // of that number
  };
  void connect(const NcclOptions& options);
  Lane& add_lane(int from, int to, std::string name);
  Lane& lane_between(int from, int to);
  Lane& lane_of(Ticket ticket);
  Ticket ticket_of(const Lane& lane, std::uint64_t number) const;
  Ticket start(Lane& lane, Part part);
  std::uint64_t launch(Lane& lane, std::span<const Part> parts);
  void count(bool sends, int peer, std::int64_t bytes, Traffic traffic);
  // Polls `ready` with the lock held until it is true, as long as no rank has failed.
  template <class F>
  void wait_until(const F& ready, int peer, Time end = Time::max()) {
    poll([](const void* f) { return (*static_cast<const F*>(f))(); }, &ready, peer, end);
  }
  void poll(bool (*ready)(const void*), const void* argument, int peer, Time end);
  void run_all(Lane& lane, std::span<const Part> parts);
  // The failure of another rank rather than what NCCL makes of it.
  [[noreturn]] void fail_by(const std::exception_ptr& why);
  void end_lanes(const std::exception_ptr& why) noexcept;
  void watch();
  void stop_watching();

  const NcclLibrary& library_;
  std::unique_ptr<LinkStreams> streams_;
  MessageLink& beneath_;
  mutable std::mutex mutex_;  // of all below, and of calls to NCCL
  std::deque<Lane> lanes_;
  std::map<std::pair<int, int>, std::size_t> by_ranks_;
  Lane* all_ = nullptr;
  ByteCounters counters_;
  std::exception_ptr failure_;
  bool stop_ = false;
  bool caller_waits_ = false;  // and says for whom
  std::condition_variable wake_;
  std::thread watcher_;  // last: it uses the other members
};

}  // namespace longstride::comm
