// Messages of a link over NCCL. How it is opened, watched and closed is in nccl_connect.cc.
#include "comm/nccl_link.h"

#include <algorithm>

#include "base/error.h"

namespace longstride::comm {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// A ticket of NCCL: this bit, the lane, the number of the launch. Others are of the link beneath.
constexpr std::uint64_t kOfNccl = std::uint64_t{1} << 63;
constexpr int kNumberBits = 40;

bool is_of_nccl(Ticket ticket) { return (ticket.number & kOfNccl) != 0; }
std::uint64_t launch_of(Ticket ticket) {
  return ticket.number & ((std::uint64_t{1} << kNumberBits) - 1);
}

// Pauses that grow with the time waited, so that a wait takes no core.
class Patience {
 public:
  void rest() {
    const Clock::duration waited = Clock::now() - begin_;
    if (waited < microseconds(200))
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::min<Clock::duration>(waited / 16, milliseconds(1)));
  }
  double seconds() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }

 private:
  Time begin_ = Clock::now();
};

template <class Buffers>
bool any_on_device(const Buffers& buffers) {
  return std::ranges::any_of(buffers,
                             [](const auto& one) { return one.memory == MemoryKind::kDevice; });
}
template <class Buffers>
void check_on_device(const Buffers& buffers) {
  for (const auto& one : buffers)
    LS_CHECK(one.bytes == 0 || one.memory == MemoryKind::kDevice,
             "some buffers of one operation are in device memory, and others are not");
}

}  // namespace

void NcclLink::poll(bool (*ready)(const void*), const void* argument, int peer, Time end) {
  Patience patience;
  bool waits = false;
  try {
    while (true) {
      {
        const std::lock_guard lock(mutex_);
        if (failure_ != nullptr) std::rethrow_exception(failure_);
        if (ready(argument)) break;
        if (!std::exchange(waits, true)) {
          caller_waits_ = true;
          beneath_.waits_elsewhere(peer == rank() ? -1 : peer);
        }
      }
      beneath_.throw_if_failed();
      if (Clock::now() >= end)
        throw Error(fmt::format("NCCL did not connect rank {} on {} with rank {} on {} within "
                                "{:.1f} s",
                                rank(), beneath_.host(rank()), peer, beneath_.host(peer),
                                patience.seconds()),
                    "see whether the process of the latter hangs; NCCL_DEBUG=INFO makes NCCL say "
                    "more, NCCL_SOCKET_IFNAME names the network to use");
      patience.rest();
    }
  } catch (...) {
    fail_by(std::current_exception());
  }
  const std::lock_guard lock(mutex_);
  caller_waits_ = false;
  if (waits) beneath_.waits_elsewhere(-1);
  counters_.seconds_waited += patience.seconds();
}

void NcclLink::fail_by(const std::exception_ptr& why) {
  beneath_.waits_elsewhere(-1);
  // NCCL may notice first that a process is gone; the link beneath says which, a moment later.
  try {
    std::rethrow_exception(why);
  } catch (const Error&) {
    for (int i = 0; i < 120 && !beneath_.failed(); ++i)
      std::this_thread::sleep_for(milliseconds(10));
  } catch (...) {  // is told as it is
  }
  std::exception_ptr told = why;
  try {
    beneath_.throw_if_failed();
  } catch (...) {
    told = std::current_exception();
  }
  end_lanes(told);
  std::rethrow_exception(told);
}

void NcclLink::end_lanes(const std::exception_ptr& why) noexcept {
  const std::lock_guard lock(mutex_);
  if (failure_ == nullptr) failure_ = why;
  for (Lane& one : lanes_) one.lane->abort();
  for (Lane& one : lanes_) one.lane->drain();
}

NcclLink::Lane& NcclLink::lane_between(int from, int to) {
  const auto found = by_ranks_.find({from, to});
  LS_CHECK(found != by_ranks_.end(), "the link was opened without a lane from rank {} to rank {}",
           from, to);
  return lanes_[found->second];
}

NcclLink::Lane& NcclLink::lane_of(Ticket ticket) {
  const std::size_t at = (ticket.number & ~kOfNccl) >> kNumberBits;
  LS_CHECK(at < lanes_.size(), "ticket {:x} is none of this link", ticket.number);
  return lanes_[at];
}

Ticket NcclLink::ticket_of(const Lane& lane, std::uint64_t number) const {
  std::uint64_t at = 0;
  while (&lanes_[at] != &lane) ++at;
  return {kOfNccl | at << kNumberBits | number};
}

void NcclLink::count(bool sends, int peer, std::int64_t bytes, Traffic traffic) {
  if (peer == rank()) return;
  const std::lock_guard lock(mutex_);
  (sends ? counters_.sent : counters_.received)[static_cast<std::size_t>(traffic)] += bytes;
}

std::uint64_t NcclLink::launch(Lane& lane, std::span<const Part> parts) {
  wait_until([&] { return lane.lane->room(); }, lane.peer);
  bool asked = false;
  std::uint64_t number = 0;
  wait_until(
      [&] {
        if (!asked) lane.lane->launch(parts);
        asked = true;
        if (!lane.lane->settled()) return false;
        number = lane.lane->launched();
        return true;
      },
      lane.peer);
  return number;
}

Ticket NcclLink::start(Lane& lane, Part part) {
  beneath_.progressed();
  if (lane.from != lane.to) return ticket_of(lane, launch(lane, {&part, 1}));
  // To itself: both ends belong in one group, so the first waits for the second.
  const std::uint64_t number = lane.lane->launches() + 1;
  LS_CHECK(part.bytes >= 0);
  std::uint64_t& posted = lane.posted[part.sends ? 1 : 0];
  if (lane.waiting.empty() || lane.waiting.front().sends == part.sends) {
    lane.waiting.push_back(part);
    // The first message of the lane was launch 1.
    return ticket_of(lane, 1 + ++posted);
  }
  const Part other = lane.waiting.front();
  LS_CHECK(other.bytes == part.bytes, "rank {} sends itself {} bytes and expects {}", rank(),
           part.sends ? part.bytes : other.bytes, part.sends ? other.bytes : part.bytes);
  lane.waiting.pop_front();
  ++posted;
  const Part both[] = {other, part};
  LS_CHECK(launch(lane, both) == number && number == 1 + posted);
  return ticket_of(lane, number);
}

Ticket NcclLink::start_send(int to, SendBuffer buffer, Traffic traffic) {
  if (buffer.memory != MemoryKind::kDevice) return beneath_.start_send(to, buffer, traffic);
  LS_CHECK(buffer.bytes >= 0, "{} bytes", buffer.bytes);
  Lane& lane = lane_between(rank(), to);
  const int place = lane.from == lane.to ? 0 : 1;
  const Ticket ticket =
      start(lane, {true, place, const_cast<std::byte*>(buffer.data), buffer.bytes});
  count(true, to, buffer.bytes, traffic);
  return ticket;
}

Ticket NcclLink::start_receive(int from, ReceiveBuffer buffer, Traffic traffic) {
  if (buffer.memory != MemoryKind::kDevice) return beneath_.start_receive(from, buffer, traffic);
  LS_CHECK(buffer.bytes >= 0, "{} bytes", buffer.bytes);
  const Ticket ticket = start(lane_between(from, rank()), {false, 0, buffer.data, buffer.bytes});
  count(false, from, buffer.bytes, traffic);
  return ticket;
}

bool NcclLink::done(Ticket ticket) {
  if (!is_of_nccl(ticket)) return beneath_.done(ticket);
  beneath_.throw_if_failed();
  const std::lock_guard lock(mutex_);
  if (failure_ != nullptr) std::rethrow_exception(failure_);
  Lane& lane = lane_of(ticket);
  return launch_of(ticket) <= lane.lane->launches() && lane.lane->has_passed(launch_of(ticket));
}

bool NcclLink::withdraw(Ticket ticket) { return !is_of_nccl(ticket) && beneath_.withdraw(ticket); }

void NcclLink::wait(Ticket ticket) {
  if (!is_of_nccl(ticket)) return beneath_.wait(ticket);
  Lane& lane = lane_of(ticket);
  LS_CHECK(launch_of(ticket) <= lane.lane->launches(),
           "rank {} waits for a message to itself whose other end was not posted", rank());
  wait_until([&] { return lane.lane->has_passed(launch_of(ticket)); }, lane.peer);
}

void NcclLink::wait_on_stream(Ticket ticket) {
  if (!is_of_nccl(ticket)) return beneath_.wait(ticket);
  beneath_.throw_if_failed();
  const std::lock_guard lock(mutex_);
  if (failure_ != nullptr) std::rethrow_exception(failure_);
  Lane& lane = lane_of(ticket);
  LS_CHECK(launch_of(ticket) <= lane.lane->launches(),
           "rank {} waits for a message to itself whose other end was not posted", rank());
  lane.lane->compute_waits(launch_of(ticket));
}

void NcclLink::abandon() noexcept {
  end_lanes(std::make_exception_ptr(InternalError("the link was abandoned by its own rank")));
  beneath_.abandon();
}

ByteCounters NcclLink::counters() const {
  ByteCounters sum = beneath_.counters();
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < sum.sent.size(); ++i) {
    sum.sent[i] += counters_.sent[i];
    sum.received[i] += counters_.received[i];
  }
  sum.seconds_waited += counters_.seconds_waited;
  return sum;
}

void NcclLink::run_all(Lane& lane, std::span<const Part> parts) {
  beneath_.progressed();
  const std::uint64_t number = launch(lane, parts);
  wait_until([&] { return lane.lane->has_passed(number); }, lane.peer);
}

void NcclLink::all_to_all(std::span<const SendBuffer> to, std::span<const ReceiveBuffer> from) {
  if (!any_on_device(to) && !any_on_device(from)) return beneath_.all_to_all(to, from);
  check_on_device(to);
  check_on_device(from);
  if (all_ == nullptr) return Link::all_to_all(to, from);
  LS_CHECK(std::ssize(to) == size() && std::ssize(from) == size());
  std::vector<Part> parts;
  for (int r = 0; r < size(); ++r) {
    const SendBuffer& mine = to[static_cast<std::size_t>(r)];
    const ReceiveBuffer& theirs = from[static_cast<std::size_t>(r)];
    parts.push_back({true, r, const_cast<std::byte*>(mine.data), mine.bytes});
    parts.push_back({false, r, theirs.data, theirs.bytes});
    count(true, r, mine.bytes, Traffic::kAllToAll);
    count(false, r, theirs.bytes, Traffic::kAllToAll);
  }
  run_all(*all_, parts);
}

void NcclLink::all_gather(SendBuffer mine, std::span<const ReceiveBuffer> from) {
  if (mine.memory != MemoryKind::kDevice && !any_on_device(from))
    return beneath_.all_gather(mine, from);
  check_on_device(from);
  if (all_ == nullptr) return Link::all_gather(mine, from);
  LS_CHECK(std::ssize(from) == size());
  std::vector<Part> parts;
  for (int r = 0; r < size(); ++r) {
    const ReceiveBuffer& theirs = from[static_cast<std::size_t>(r)];
    parts.push_back({true, r, const_cast<std::byte*>(mine.data), mine.bytes});
    parts.push_back({false, r, theirs.data, theirs.bytes});
    count(true, r, mine.bytes, Traffic::kAllGather);
    count(false, r, theirs.bytes, Traffic::kAllGather);
  }
  run_all(*all_, parts);
}

void NcclLink::broadcast(int root, ReceiveBuffer buffer) {
  if (buffer.memory != MemoryKind::kDevice) return beneath_.broadcast(root, buffer);
  if (all_ == nullptr) return Link::broadcast(root, buffer);
  LS_CHECK(root >= 0 && root < size(), "rank {} of {}", root, size());
  beneath_.progressed();
  wait_until([&] { return all_->lane->room(); }, all_->peer);
  bool asked = false;
  const int peer = root == rank() ? all_->peer : root;
  std::uint64_t number = 0;
  wait_until(
      [&] {
        if (!std::exchange(asked, true))
          all_->lane->launch_broadcast(root, buffer.data, buffer.bytes);
        if (!all_->lane->settled()) return false;
        number = all_->lane->launched();
        return true;
      },
      peer);
  wait_until([&] { return all_->lane->has_passed(number); }, peer);
  // How NCCL spreads it is its own affair: every other rank receives it once, from the root.
  if (root != rank()) return count(false, root, buffer.bytes, Traffic::kBroadcast);
  for (int r = 0; r < size(); ++r) count(true, r, buffer.bytes, Traffic::kBroadcast);
}

}  // namespace longstride::comm
