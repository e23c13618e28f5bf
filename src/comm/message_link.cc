// What callers see of a link. The owning thread is in message_owner.cc.
#include "comm/message_link.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/threads.h"

namespace longstride::comm {
namespace {

Clock::duration from_seconds(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

}  // namespace

MessageLink::MessageLink(const MakeWire& make_wire, LinkOptions options)
    : options_(std::move(options)),
      timeout_(from_seconds(options_.timeout_seconds)),
      period_(from_seconds(std::clamp(options_.timeout_seconds / 10, 0.02, 0.5))) {
  LS_CHECK(options_.timeout_seconds > 0 && options_.ending_seconds > 0);
  owner_ = start_thread([this, make_wire] { own(make_wire); });
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return ready_ || failure_ != nullptr; });
  if (failure_ == nullptr) return;
  closing_ = ending_ = true;
  const std::exception_ptr why = failure_;
  lock.unlock();
  given_.notify_all();
  owner_.join();
  std::rethrow_exception(why);
}

MessageLink::~MessageLink() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = ending_ = true;
  }
  given_.notify_all();
  owner_.join();
}

void MessageLink::throw_failure() const {
  if (failure_ != nullptr) std::rethrow_exception(failure_);
}

Ticket MessageLink::post(Operation operation, MemoryKind memory) {
  LS_CHECK(operation.peer >= 0 && operation.peer < size_, "rank {} of {}", operation.peer, size_);
  LS_CHECK(operation.bytes >= 0, "{} bytes", operation.bytes);
  LS_CHECK(moves(memory), "this link does not move {} memory", name_of(memory));
  Ticket ticket;
  {
    const std::lock_guard lock(mutex_);
    throw_failure();
    LS_CHECK(!closing_, "the link is closed");
    operation.ticket = ticket.number = ++tickets_;
    unfinished_.emplace(ticket.number, operation.peer);
    posted_.push_back(operation);
    ++progress_;
  }
  given_.notify_one();
  return ticket;
}

Ticket MessageLink::start_send(int to, SendBuffer buffer, Traffic traffic) {
  return post({0, true, to, buffer.data, nullptr, buffer.bytes, traffic}, buffer.memory);
}

Ticket MessageLink::start_receive(int from, ReceiveBuffer buffer, Traffic traffic) {
  return post({0, false, from, nullptr, buffer.data, buffer.bytes, traffic}, buffer.memory);
}

bool MessageLink::done(Ticket ticket) {
  const std::lock_guard lock(mutex_);
  throw_failure();
  return !unfinished_.contains(ticket.number);
}

void MessageLink::wait(Ticket ticket) {
  std::unique_lock lock(mutex_);
  throw_failure();
  LS_CHECK(ticket.number <= tickets_, "ticket {} of {}", ticket.number, tickets_);
  const auto found = unfinished_.find(ticket.number);
  if (found == unfinished_.end()) return;
  const Time begin = Clock::now();
  waits_for_ = found->second;
  wait_began_ = true;
  given_.notify_one();
  changed_.wait(lock, [&] { return failure_ != nullptr || !unfinished_.contains(ticket.number); });
  waits_for_ = -1;
  counters_.seconds_waited += std::chrono::duration<double>(Clock::now() - begin).count();
  throw_failure();
}

bool MessageLink::withdraw(Ticket ticket) {
  std::unique_lock lock(mutex_);
  throw_failure();
  if (!unfinished_.contains(ticket.number)) return false;
  withdrawing_ = ticket.number;
  given_.notify_one();
  changed_.wait(lock, [this] { return failure_ != nullptr || withdrawing_ == 0; });
  throw_failure();
  return withdrawn_;
}

void MessageLink::abandon() noexcept {
  std::unique_lock lock(mutex_);
  abandoning_ = true;
  given_.notify_all();
  changed_.wait(lock, [this] { return failure_ != nullptr; });
}

ByteCounters MessageLink::counters() const {
  const std::lock_guard lock(mutex_);
  return counters_;
}

int MessageLink::local_rank() const {
  return static_cast<int>(std::count(hosts_.begin(), hosts_.begin() + rank_, host(rank_)));
}

int MessageLink::local_size() const {
  return static_cast<int>(std::count(hosts_.begin(), hosts_.end(), host(rank_)));
}

void MessageLink::progressed() {
  const std::lock_guard lock(mutex_);
  throw_failure();
  ++progress_;
}

void MessageLink::ask_to_stop(int number) {
  const std::lock_guard lock(mutex_);
  stop_ = std::max(stop_, number);
}

int MessageLink::asked_to_stop() const {
  const std::lock_guard lock(mutex_);
  return std::max(stop_, others_stop_);
}

void MessageLink::waits_elsewhere(int rank) {
  const std::lock_guard lock(mutex_);
  waits_elsewhere_ = rank;
}

bool MessageLink::failed() const {
  const std::lock_guard lock(mutex_);
  return failure_ != nullptr;
}

void MessageLink::throw_if_failed() const {
  const std::lock_guard lock(mutex_);
  throw_failure();
}

bool MessageLink::fail(const std::string& message, int status) noexcept {
  try {
    std::unique_lock lock(mutex_);
    if (failing_ == nullptr) failing_ = std::make_unique<Failing>(Failing{message, status});
    given_.notify_all();
    // Without an answer from another rank in this time we tell: better twice than never.
    changed_.wait_for(lock, std::chrono::seconds(1), [this] { return answer_ != Answer::kNone; });
    return answer_ != Answer::kBeQuiet;
  } catch (...) {
    return true;  // no memory for the message
  }
}

void MessageLink::close() {
  std::unique_lock lock(mutex_);
  throw_failure();
  LS_CHECK(unfinished_.empty(), "{} messages are under way", unfinished_.size());
  closing_ = true;
  given_.notify_all();
  changed_.wait(lock, [this] { return closed_ || failure_ != nullptr; });
  throw_failure();
}

}  // namespace longstride::comm
