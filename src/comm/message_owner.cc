// The thread that owns the wire of a MessageLink.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <utility>

#include "base/error.h"
#include "base/system_calls.h"
#include "comm/message_link.h"

namespace longstride::comm {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

std::string machine_name() {
  std::array<char, HOST_NAME_MAX + 1> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

// Process numbers mean something within one of these alone.
std::string process_space() {
  std::array<char, 64> name{};
  return ::readlink("/proc/self/ns/pid", name.data(), name.size() - 1) > 0 ? name.data() : "";
}

bool has_died(std::int64_t process) {
  return ::kill(static_cast<pid_t>(process), 0) != 0 && errno == ESRCH;
}

}  // namespace

std::string MessageLink::name(int rank) const {
  const std::string& host = peers_->at(rank).host;
  return host.empty() ? fmt::format("rank {}", rank) : fmt::format("rank {} on {}", rank, host);
}

void MessageLink::set_failure(const std::exception_ptr& why) {
  {
    const std::lock_guard lock(mutex_);
    if (failure_ != nullptr) return;
    // Before callers learn of it, since they will release their buffers.
    if (transfers_ != nullptr && !std::exchange(cancelled_, true)) transfers_->cancel();
    failure_ = why;
  }
  failed_at_ = Clock::now();
  changed_.notify_all();
}

void MessageLink::own(const MakeWire& make_wire) {
  std::unique_ptr<Wire> wire;
  try {
    wire = make_wire();
    rank_ = wire->rank();
    size_ = wire->size();
    last_step_ = last_move_ = Clock::now();
    peers_ = std::make_unique<Peers>(rank_, size_, last_step_);
    transfers_ = std::make_unique<Transfers>(*wire, options_.part_bytes);
    greet(*wire);
  } catch (...) {
    set_failure(std::current_exception());
    if (wire == nullptr) return;
  }
  run(*wire);
  end(*wire);
}

void MessageLink::greet(Wire& wire) {
  const std::string host = options_.host.empty() ? machine_name() : options_.host;
  note_all(wire, {NoteKind::kHello, 0, ::getpid(), 0, host + '\n' + process_space()});
  Peer& self = peers_->at(rank_);
  self.host = host;
  self.process = ::getpid();
  self.process_space = process_space();
  const Time begin = Clock::now();
  while (!peers_->all_known()) {
    rest(take_notes(wire));
    if (Clock::now() - begin < timeout_) continue;
    int missing = 0;
    while (peers_->at(missing).known()) ++missing;
    throw Error(
        fmt::format("rank {} of {} did not come within {} s", missing, size_,
                    options_.timeout_seconds),
        "see whether its process was started, and whether its host can be reached from " + host);
  }
  for (int rank = 0; rank < size_; ++rank) hosts_.push_back(peers_->at(rank).host);
  {
    const std::lock_guard lock(mutex_);
    ready_ = true;
  }
  changed_.notify_all();
}

void MessageLink::run(Wire& wire) {
  while (true) {
    bool moved = false;
    try {
      moved = step(wire);
    } catch (...) {
      set_failure(std::current_exception());
    }
    std::unique_lock lock(mutex_);
    const bool failed = failure_ != nullptr || failing_ != nullptr;
    const bool all_gone = peers_->all_left() && said_bye_;
    if (all_gone && !closed_) {
      closed_ = true;
      changed_.notify_all();
    }
    if (ending_ && all_gone) return;
    if (ending_ && failed &&
        Clock::now() - failed_at_ > std::chrono::duration<double>(options_.ending_seconds))
      return;
    lock.unlock();
    rest(moved);
  }
}

// One round. Returns whether anything has moved.
bool MessageLink::step(Wire& wire) {
  std::vector<Operation> posted, finished;
  bool failed = false, bye = false;
  std::uint64_t withdrawing = 0;
  {
    const std::lock_guard lock(mutex_);
    LS_CHECK(!abandoning_ || failure_ != nullptr, "the link was abandoned by its own rank");
    posted.swap(posted_);
    withdrawing = withdrawing_;
    failed = failure_ != nullptr || failing_ != nullptr;
    bye = closing_ && (failed || (posted.empty() && unfinished_.empty()));
  }
  bool moved = take_notes(wire) || !posted.empty();
  tell_others(wire);
  // A note may have ended all: callers have released their buffers then.
  if (!failed && !cancelled_) {
    for (const Operation& operation : posted) transfers_->start(operation);
    if (withdrawing != 0) take_back(withdrawing);
    moved = transfers_->advance(finished) || moved;
  }
  if (!finished.empty()) {
    {
      const std::lock_guard lock(mutex_);
      for (const Operation& operation : finished) {
        unfinished_.erase(operation.ticket);
        ++progress_;
        if (operation.peer == rank_) continue;
        auto& counters = operation.sends ? counters_.sent : counters_.received;
        counters[static_cast<std::size_t>(operation.traffic)] += operation.bytes;
      }
    }
    changed_.notify_all();
  }
  if (bye && !std::exchange(said_bye_, true)) {
    if (failed) failed_at_ = Clock::now();
    note_all(wire, {NoteKind::kBye});
  }
  watch(wire);
  return moved;
}

void MessageLink::take_back(std::uint64_t ticket) {
  const bool withdrawn = transfers_->withdraw(ticket);
  {
    const std::lock_guard lock(mutex_);
    withdrawn_ = withdrawn;
    withdrawing_ = 0;
    if (withdrawn) unfinished_.erase(ticket);
  }
  changed_.notify_all();
}

bool MessageLink::take_notes(Wire& wire) {
  bool any = false;
  while (std::optional<Wire::Arrived> arrived = wire.next_note()) {
    any = true;
    handle(wire, arrived->from, decode(arrived->note));
  }
  return any;
}

void MessageLink::handle(Wire& wire, int from, Note note) {
  const Time now = Clock::now();
  Peer& peer = peers_->at(from);
  peer.heard = now;
  switch (note.kind) {
    case NoteKind::kHello: {
      const std::size_t line = note.text.find('\n');
      peer.host = note.text.substr(0, line);
      peer.process_space = line == std::string::npos ? "" : note.text.substr(line + 1);
      peer.process = note.a;
      peer.advanced = now;
      break;
    }
    case NoteKind::kMessage:
      if (!cancelled_) transfers_->arrived(from, std::move(note));
      break;
    case NoteKind::kBeat:
      peers_->beat(from, note.a, note.number, now);
      if (note.b > 0) {
        const std::lock_guard lock(mutex_);
        others_stop_ = std::max(others_stop_, static_cast<int>(note.b));
      }
      break;
    case NoteKind::kFailed:
      heard_failure_ = true;
      status_ = note.number;
      set_failure(std::make_exception_ptr(
          RankFailed(from, note.number, fmt::format("{}: {}", name(from), note.text))));
      break;
    case NoteKind::kAsk:
      wire.send_note(from, encode({NoteKind::kAnswer, std::exchange(told_, true) ? 0 : 1}));
      break;
    case NoteKind::kAnswer: {
      const std::lock_guard lock(mutex_);
      answer_ = note.number == 1 ? Answer::kTell : Answer::kBeQuiet;
      changed_.notify_all();
      break;
    }
    case NoteKind::kBye:
      peer.left = true;
      break;
  }
}

// The failure of this rank, once: to all, and the question who tells the user.
void MessageLink::tell_others(Wire& wire) {
  Note note;
  {
    const std::lock_guard lock(mutex_);
    if (failing_ == nullptr || std::exchange(sent_failure_, true)) return;
    note = {NoteKind::kFailed, failing_->status, 0, 0, failing_->message};
  }
  status_ = note.number;
  set_failure(std::make_exception_ptr(RankFailed(rank_, note.number, note.text)));
  note_all(wire, note);
  // Who has failed before has found one who tells, and may have left.
  if (heard_failure_) told_ = true;
  const int teller =
      heard_failure_ ? rank_
                     : peers_->lowest_alive(
                           std::max<Clock::duration>(4 * period_, milliseconds(500)), Clock::now());
  if (teller != rank_) {
    wire.send_note(teller, encode({NoteKind::kAsk}));
    return;
  }
  const std::lock_guard lock(mutex_);
  answer_ = std::exchange(told_, true) ? Answer::kBeQuiet : Answer::kTell;
  changed_.notify_all();
}

void MessageLink::note_all(Wire& wire, const Note& note) {
  for (int other = 0; other < size_; ++other)
    if (other != rank_) wire.send_note(other, encode(note));
}

// Beats, and a look at the others.
void MessageLink::watch(Wire& wire) {
  const Time now = Clock::now();
  if (now - last_step_ > std::chrono::seconds(1)) peers_->forgive(now - last_step_);
  last_step_ = now;
  if (now - last_beat_ < period_) return;
  last_beat_ = now;
  int waits_for = -1;
  std::int64_t progress = 0, stop = 0;
  {
    const std::lock_guard lock(mutex_);
    stop = stop_;
    waits_for = waits_for_ >= 0 ? waits_for_ : waits_elsewhere_;
    progress = progress_;
    if (closing_ && waits_for < 0) waits_for = peers_->first_present();
    if (failure_ != nullptr) waits_for = -1;
  }
  peers_->beat(rank_, progress, waits_for, now);
  const std::vector<std::byte> beat = encode({NoteKind::kBeat, waits_for, progress, stop, {}});
  constexpr int kMostBeats = 4;  // to a rank that takes none
  for (int other = 0; other < size_; ++other)
    if (other != rank_ && !peers_->at(other).left && wire.notes_under_way(other) < kMostBeats)
      wire.send_note(other, beat);
  if (failed_at_ != Time{}) return;
  const Peer& self = peers_->at(rank_);
  for (int other = 0; other < size_; ++other) {
    Peer& peer = peers_->at(other);
    if (other == rank_ || peer.left || peer.host != self.host || peer.process_space.empty() ||
        peer.process_space != self.process_space || !has_died(peer.process))
      continue;
    peer.heard = {};  // it cannot say who is to tell
    throw Error(fmt::format("{} has died (process {})", name(other), peer.process),
                "its own output, or the system's log (out of memory?), may say why");
  }
  if (waits_for < 0 || waits_for == rank_) return;
  if (const std::optional<Blamed> blamed = peers_->blame(waits_for, timeout_, now))
    throw Error(
        fmt::format("{} {}", name(blamed->rank), blamed->why),
        fmt::format("see what its process does there; if its work takes that long, raise the "
                    "timeout (now {} s)",
                    options_.timeout_seconds));
}

// While messages are under way, pauses grow with the time since the last one moved, or since the
// caller began to wait: a receive may have been started long before.
void MessageLink::rest(bool moved) {
  const Time now = Clock::now();
  if (moved) {
    last_move_ = now;
    return;
  }
  const Clock::duration quiet = now - last_move_;
  std::unique_lock lock(mutex_);
  if (!posted_.empty() || withdrawing_ != 0) return;
  if (std::exchange(wait_began_, false)) {
    last_move_ = now;
    return;
  }
  const bool idle = ready_ && transfers_ != nullptr && transfers_->idle() && !closing_ &&
                    failure_ == nullptr && failing_ == nullptr;
  if (quiet < microseconds(200)) {  // sooner than a sleeper wakes
    lock.unlock();
    std::this_thread::yield();
  } else if (idle) {
    given_.wait_for(lock, period_, [this] {
      return !posted_.empty() || withdrawing_ != 0 || closing_ || failing_ || abandoning_;
    });
    last_move_ = Clock::now();
  } else {
    given_.wait_for(lock, std::min<Clock::duration>(quiet / 16, milliseconds(1)));
  }
}

// All have said bye, or it is no use to wait.
void MessageLink::end(Wire& wire) {
  try {
    if (peers_->all_left() && said_bye_)
      wire.close();
    else
      wire.abort(status_);
  } catch (...) {
    wire.abort(status_);
  }
}

}  // namespace longstride::comm
