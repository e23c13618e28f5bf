#include "comm/link_check.h"

#include <cstring>
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

void expect(const Link& link, const Bytes& got, int from, int to, const char* operation) {
  if (got == pattern(from, to, static_cast<std::int64_t>(got.size()))) return;
  throw Error(fmt::format("{} of {} bytes: rank {} received other bytes than rank {} sent",
                          operation, got.size(), link.rank(), from),
              "the MPI library, or the network between these ranks, damages messages");
}

// Between ranks a and b, of `bytes` in all: uneven, and 0 for some.
std::int64_t share(std::int64_t bytes, int a, int b, int n) {
  return (a + b) % 3 == 2 ? 0 : bytes / n + (a * 7 + b) % 5;
}

// To both neighbours at once, in two messages each way, the second of one byte.
void check_messages(Link& link, std::int64_t bytes) {
  const int n = link.size(), me = link.rank();
  std::vector<Bytes> buffers;
  buffers.reserve(8);
  std::vector<Ticket> tickets;
  struct Expected {
    std::size_t buffer;
    int from, to;
  };
  std::vector<Expected> expected;
  for (const int step : {1, n - 1}) {
    const int to = (me + step) % n, from = (me - step + n) % n;
    for (const std::int64_t size : {bytes, std::int64_t{1}}) {
      buffers.push_back(pattern(me, to, size));
      tickets.push_back(link.send(to, buffers.back()));
      buffers.emplace_back(static_cast<std::size_t>(size));
      tickets.push_back(link.receive(from, buffers.back()));
      expected.push_back({buffers.size() - 1, from, me});
    }
  }
  for (const Ticket ticket : tickets) link.wait(ticket);
  for (const Expected& one : expected)
    expect(link, buffers[one.buffer], one.from, one.to, "a message");
}

}  // namespace

void check_link(Link& link, std::int64_t bytes) {
  const int n = link.size(), me = link.rank();
  check_messages(link, bytes);

  std::vector<Bytes> to, from(static_cast<std::size_t>(n));
  for (int rank = 0; rank < n; ++rank) {
    to.push_back(pattern(me, rank, share(bytes, me, rank, n)));
    from[static_cast<std::size_t>(rank)].resize(
        static_cast<std::size_t>(share(bytes, rank, me, n)));
  }
  link.all_to_all(std::vector<SendBuffer>(to.begin(), to.end()),
                  std::vector<ReceiveBuffer>(from.begin(), from.end()));
  for (int rank = 0; rank < n; ++rank)
    expect(link, from[static_cast<std::size_t>(rank)], rank, me, "all_to_all");

  for (int rank = 0; rank < n; ++rank)
    from[static_cast<std::size_t>(rank)].assign(
        static_cast<std::size_t>(share(bytes, rank, rank, n)), std::byte{});
  const Bytes mine = pattern(me, n, share(bytes, me, me, n));
  link.all_gather(mine, std::vector<ReceiveBuffer>(from.begin(), from.end()));
  for (int rank = 0; rank < n; ++rank)
    expect(link, from[static_cast<std::size_t>(rank)], rank, n, "all_gather");

  const int root = static_cast<int>(bytes % n);
  Bytes value = me == root ? pattern(root, n, bytes) : Bytes(static_cast<std::size_t>(bytes));
  link.broadcast(root, value);
  expect(link, value, root, n, "broadcast");
  link.barrier();
}

}  // namespace longstride::comm
