#include "comm/link_check.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <vector>

#include "base/error.h"

namespace longstride::comm {
namespace {

using Bytes = std::vector<std::byte>;

std::uint64_t word(int from, int to, std::int64_t place) {
  std::uint64_t x = static_cast<std::uint64_t>(place) * 0x9E3779B97F4A7C15u +
                    static_cast<std::uint64_t>(from * 4099 + to + 1) * 0xBF58476D1CE4E5B9u;
  x ^= x >> 29;
  return x * 0x94D049BB133111EBu;
}

// What rank `from` sends to rank `to`.
Bytes pattern(int from, int to, std::int64_t bytes) {
  Bytes all(static_cast<std::size_t>(bytes));
  for (std::size_t i = 0; i < all.size(); i += 8) {
    const std::uint64_t value = word(from, to, static_cast<std::int64_t>(i));
    std::memcpy(all.data() + i, &value, std::min<std::size_t>(8, all.size() - i));
  }
  return all;
}

void expect(const Link& link, const CheckBuffer& received, int from, int to,
            const char* operation) {
  const Bytes got = received.read();
  if (got == pattern(from, to, static_cast<std::int64_t>(got.size()))) return;
  throw Error(
      fmt::format("{} of {} bytes in {} memory: rank {} received other bytes than rank {} sent",
                  operation, got.size(), name_of(received.out().memory), link.rank(), from),
      "the library that moves them, or the network between these ranks, damages messages");
}

// Between ranks a and b, of `bytes` in all: uneven, and 0 for some.
std::int64_t share(std::int64_t bytes, int a, int b, int n) {
  return (a + b) % 3 == 2 ? 0 : bytes / n + (a * 7 + b) % 5;
}

// To both neighbours at once, in two messages each way, the second of one byte.
void check_messages(Link& link, std::int64_t bytes, const CheckMemory& memory) {
  const int n = link.size(), me = link.rank();
  std::deque<CheckBuffer> buffers;
  std::vector<Ticket> tickets;
  struct Expected {
    std::size_t buffer;
    int from, to;
  };
  std::vector<Expected> expected;
  for (const int step : {1, n - 1}) {
    const int to = (me + step) % n, from = (me - step + n) % n;
    for (const std::int64_t size : {bytes, std::int64_t{1}}) {
      buffers.emplace_back(memory, pattern(me, to, size));
      tickets.push_back(link.send(to, buffers.back().out()));
      buffers.emplace_back(memory, size);
      tickets.push_back(link.receive(from, buffers.back().in()));
      expected.push_back({buffers.size() - 1, from, me});
    }
  }
  for (const Ticket ticket : tickets) link.wait(ticket);
  for (const Expected& one : expected)
    expect(link, buffers[one.buffer], one.from, one.to, "a message");
}

}  // namespace

CheckBuffer::CheckBuffer(const CheckMemory& memory, std::int64_t bytes)
    : memory_(memory), bytes_(bytes) {
  if (memory.kind == MemoryKind::kDevice) {
    LS_CHECK(memory.device != nullptr);
    on_device_ = memory.device->allocate(std::max<std::int64_t>(bytes, 1), "messages of a check");
    data_ = on_device_->data();
  } else {
    host_.resize(static_cast<std::size_t>(bytes));
    data_ = host_.data();
  }
}

CheckBuffer::CheckBuffer(const CheckMemory& memory, const Bytes& content)
    : CheckBuffer(memory, std::ssize(content)) {
  if (on_device_ != nullptr)
    memory_.device->copy_from_host(data_, content.data(), bytes_);
  else
    std::ranges::copy(content, host_.begin());
}

Bytes CheckBuffer::read() const {
  if (on_device_ == nullptr) return host_;
  Bytes all(static_cast<std::size_t>(bytes_));
  memory_.device->copy_to_host(all.data(), data_, bytes_);
  return all;
}

void check_link(Link& link, std::int64_t bytes, const CheckMemory& memory) {
  const int n = link.size(), me = link.rank();
  check_messages(link, bytes, memory);

  std::deque<CheckBuffer> to, from;
  std::vector<SendBuffer> sends;
  std::vector<ReceiveBuffer> receives;
  for (int rank = 0; rank < n; ++rank) {
    sends.push_back(to.emplace_back(memory, pattern(me, rank, share(bytes, me, rank, n))).out());
    receives.push_back(from.emplace_back(memory, share(bytes, rank, me, n)).in());
  }
  link.all_to_all(sends, receives);
  for (int rank = 0; rank < n; ++rank)
    expect(link, from[static_cast<std::size_t>(rank)], rank, me, "all_to_all");

  std::deque<CheckBuffer> gathered;
  receives.clear();
  for (int rank = 0; rank < n; ++rank)
    receives.push_back(gathered.emplace_back(memory, share(bytes, rank, rank, n)).in());
  const CheckBuffer mine(memory, pattern(me, n, share(bytes, me, me, n)));
  link.all_gather(mine.out(), receives);
  for (int rank = 0; rank < n; ++rank)
    expect(link, gathered[static_cast<std::size_t>(rank)], rank, n, "all_gather");

  const int root = static_cast<int>(bytes % n);
  CheckBuffer value =
      me == root ? CheckBuffer(memory, pattern(root, n, bytes)) : CheckBuffer(memory, bytes);
  link.broadcast(root, value.in());
  expect(link, value, root, n, "broadcast");
  link.barrier();
}

}  // namespace longstride::comm
