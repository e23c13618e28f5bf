#include "comm/link.h"

#include <numeric>
#include <vector>

#include "base/error.h"

namespace longstride::comm {

const char* name_of(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::kHost:
      return "host";
    case MemoryKind::kPinned:
      return "pinned";
    case MemoryKind::kDevice:
      return "device";
  }
  return "unknown";
}

const char* name_of(Traffic traffic) {
  switch (traffic) {
    case Traffic::kMessage:
      return "message";
    case Traffic::kAllToAll:
      return "all_to_all";
    case Traffic::kAllGather:
      return "all_gather";
    case Traffic::kBroadcast:
      return "broadcast";
    case Traffic::kBarrier:
      return "barrier";
    case Traffic::kControl:
      return "control";
    case Traffic::kVote:
      return "vote";
  }
  return "unknown";
}

std::int64_t ByteCounters::all_sent() const {
  return std::accumulate(sent.begin(), sent.end(), std::int64_t{0});
}
std::int64_t ByteCounters::tensors_sent() const {
  return all_sent() - sent[static_cast<std::size_t>(Traffic::kControl)] -
         sent[static_cast<std::size_t>(Traffic::kVote)];
}
std::int64_t ByteCounters::all_received() const {
  return std::accumulate(received.begin(), received.end(), std::int64_t{0});
}

void Link::all_to_all(std::span<const SendBuffer> to, std::span<const ReceiveBuffer> from) {
  const int n = size();
  LS_CHECK(static_cast<int>(to.size()) == n && static_cast<int>(from.size()) == n,
           "{} and {} buffers for {} ranks", to.size(), from.size(), n);
  std::vector<Ticket> tickets;
  // Each rank begins with its neighbour, so that not all send to rank 0 at once.
  for (int i = 0; i < n; ++i) {
    const int source = (rank() - i + n) % n;
    tickets.push_back(
        start_receive(source, from[static_cast<std::size_t>(source)], Traffic::kAllToAll));
  }
  for (int i = 0; i < n; ++i) {
    const int target = (rank() + i) % n;
    tickets.push_back(start_send(target, to[static_cast<std::size_t>(target)], Traffic::kAllToAll));
  }
  for (const Ticket ticket : tickets) wait(ticket);
}

void Link::all_gather(SendBuffer mine, std::span<const ReceiveBuffer> from) {
  const int n = size();
  LS_CHECK(static_cast<int>(from.size()) == n, "{} buffers for {} ranks", from.size(), n);
  std::vector<Ticket> tickets;
  for (int i = 0; i < n; ++i) {
    const int source = (rank() - i + n) % n;
    tickets.push_back(
        start_receive(source, from[static_cast<std::size_t>(source)], Traffic::kAllGather));
  }
  for (int i = 0; i < n; ++i)
    tickets.push_back(start_send((rank() + i) % n, mine, Traffic::kAllGather));
  for (const Ticket ticket : tickets) wait(ticket);
}

// A tree: in round k, the 2^k ranks that have the bytes send them to as many others.
void Link::broadcast(int root, ReceiveBuffer buffer) {
  const int n = size();
  LS_CHECK(root >= 0 && root < n, "rank {} of {}", root, n);
  const int place = (rank() - root + n) % n;  // counted from the root
  int step = 1;
  while (step <= place) step *= 2;
  if (place > 0) wait(start_receive((place - step / 2 + root) % n, buffer, Traffic::kBroadcast));
  std::vector<Ticket> tickets;
  for (; place + step < n; step *= 2)
    tickets.push_back(start_send((place + step + root) % n,
                                 {buffer.data, buffer.bytes, buffer.memory}, Traffic::kBroadcast));
  for (const Ticket ticket : tickets) wait(ticket);
}

// In round k each rank hears from the one 2^k before it, which has heard from 2^k ranks.
void Link::barrier() {
  const int n = size();
  for (int step = 1; step < n; step *= 2) {
    const Ticket receiving = start_receive((rank() - step + n) % n, {}, Traffic::kBarrier);
    wait(start_send((rank() + step) % n, {}, Traffic::kBarrier));
    wait(receiving);
  }
}

}  // namespace longstride::comm
