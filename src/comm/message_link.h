// MessageLink: a Link over a wire, for host memory, which also watches the other ranks: one that
// fails, dies or hangs ends the wait of all others.
//
// One thread owns the wire (for MPI: the only one that calls it). It polls with growing pauses
// while messages are under way, and sleeps while there are none but for a beat every now and then.
// A beat tells the other ranks how far this one has come and whom it waits for.
//
// The end: all ranks destroy their links, which waits until all have come there. After a failure it
// waits for `ending_seconds` and then aborts the processes of all ranks.
#pragma once

#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "comm/link.h"
#include "comm/peers.h"
#include "comm/transfers.h"

namespace longstride::comm {

struct LinkOptions {
  double timeout_seconds = 600;  // without progress of a rank that we wait for
  double ending_seconds = 2;
  std::int64_t part_bytes = std::int64_t{16} << 20;
  std::string host;  // empty: the machine's name
};

class MessageLink final : public Link {
 public:
  // Calls `make_wire` on the owning thread, and returns when all ranks have said hello. Throws what
  // make_wire throws, or Error if a rank does not come within the timeout.
  MessageLink(const MakeWire& make_wire, LinkOptions options);
  MessageLink(const MessageLink&) = delete;
  MessageLink& operator=(const MessageLink&) = delete;
  ~MessageLink() override;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  bool moves(MemoryKind kind) const override { return kind != MemoryKind::kDevice; }
  bool done(Ticket ticket) override;
  void wait(Ticket ticket) override;
  bool withdraw(Ticket ticket) override;
  void abandon() noexcept override;
  ByteCounters counters() const override;

  const std::string& host(int rank) const { return hosts_[static_cast<std::size_t>(rank)]; }
  // Among the ranks of the same host.
  int local_rank() const;
  int local_size() const;

  // The caller has done a piece of its work. To be called more often than once in the timeout;
  // every message counts as well. Throws if another rank has failed, like any call.
  void progressed();
  // This rank is asked to stop, by a number above 0. The others hear of it by beats.
  void ask_to_stop(int number);
  // The largest number that any rank was asked to stop by, as far as this one has heard; 0: none.
  int asked_to_stop() const;
  // For links that move bytes by other means and leave it to this one to watch the ranks (NCCL).
  // This rank waits for `rank` there; -1: no more. Beats say so where it does not wait here. Any
  // thread may call these.
  void waits_elsewhere(int rank);
  bool failed() const;
  // Throws what any call would.
  void throw_if_failed() const;
  // This rank has failed: `message` and the exit `status` go to all others, whose calls throw
  // RankFailed. Returns whether this rank is to tell the user: of several that fail, one tells.
  // Never throws.
  bool fail(const std::string& message, int status) noexcept;
  // Waits until all ranks have called it; nothing can be sent after it. Throws RankFailed if one
  // fails instead. Optional: a link that is destroyed without it waits too, and says nothing.
  void close();

  Ticket start_send(int to, SendBuffer buffer, Traffic traffic) override;
  Ticket start_receive(int from, ReceiveBuffer buffer, Traffic traffic) override;

 private:
  enum class Answer : std::uint8_t { kNone, kTell, kBeQuiet };
  struct Failing {
    std::string message;
    int status = 0;
  };
  Ticket post(Operation operation, MemoryKind memory);
  void throw_failure() const;  // if there is one
  // The owner's.
  void own(const MakeWire& make_wire);
  void greet(Wire& wire);
  void run(Wire& wire);
  void end(Wire& wire);
  bool step(Wire& wire);
  void take_back(std::uint64_t ticket);
  bool take_notes(Wire& wire);
  void handle(Wire& wire, int from, Note note);
  void watch(Wire& wire);
  void tell_others(Wire& wire);
  void note_all(Wire& wire, const Note& note);
  void rest(bool moved);
  void set_failure(const std::exception_ptr& why);
  std::string name(int rank) const;

  const LinkOptions options_;
  const Clock::duration timeout_, period_;  // of beats
  int rank_ = 0, size_ = 0;
  std::vector<std::string> hosts_;

  mutable std::mutex mutex_;
  std::condition_variable given_, changed_;  // to the owner; to the caller
  std::vector<Operation> posted_;
  std::unordered_map<std::uint64_t, int> unfinished_;  // ticket: peer
  std::uint64_t tickets_ = 0;
  std::uint64_t withdrawing_ = 0;  // a ticket that the owner is asked to take back
  bool withdrawn_ = false;         // its answer
  bool wait_began_ = false;        // the owner polls without pauses for a while
  std::int64_t progress_ = 0;
  int waits_for_ = -1, waits_elsewhere_ = -1;
  int stop_ = 0, others_stop_ = 0;  // numbers to stop by: this rank's, and those heard of
  ByteCounters counters_;
  std::exception_ptr failure_;
  std::unique_ptr<Failing> failing_;
  Answer answer_ = Answer::kNone;
  bool ready_ = false, abandoning_ = false, closing_ = false, closed_ = false, ending_ = false;

  // The owner's.
  std::unique_ptr<Transfers> transfers_;
  std::unique_ptr<Peers> peers_;
  bool told_ = false;           // some rank has been allowed to tell the user
  bool heard_failure_ = false;  // of another rank
  bool said_bye_ = false, sent_failure_ = false, cancelled_ = false;
  int status_ = 1;
  Time last_step_{}, last_beat_{}, last_move_{}, failed_at_{};

  std::thread owner_;  // last: it uses the other members
};

}  // namespace longstride::comm
