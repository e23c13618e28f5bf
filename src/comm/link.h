// Link: moves bytes between the ranks of a group. It never adds: sums are our kernels', in a fixed
// order, so no library decides a bit.
//
// Messages between two ranks arrive in the order of the calls; votes have an order of their own, so
// that they may overtake, and be overtaken by, others. The receiver names the size; a message of
// another size or another kind of traffic is an InternalError at the receiver that names both, and
// a RankFailed elsewhere. Sizes may exceed 2 GiB.
//
// Buffers belong to the caller, who leaves them alone from the call until the ticket is done. Each
// names its kind of memory; a link refuses kinds that it does not move (see `moves`). Device memory
// is read and written after what the device's stream was given before the call; a message in device
// memory at one end is in device memory at the other.
//
// Threads: one thread at a time calls, and waits without using a core. Beside it another thread may
// start sends and receives of host memory; the order of both threads' calls is theirs to keep.
//
// Errors: every call may throw RankFailed. From then on all calls throw, and no buffer is written
// any more. A caller that leaves by an exception of its own while tickets are not done
// calls abandon() before it releases the buffers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

namespace longstride::comm {

enum class MemoryKind : std::uint8_t { kHost, kPinned, kDevice };
const char* name_of(MemoryKind kind);

// Implicit from spans and vectors of host memory.
struct SendBuffer {
  SendBuffer() = default;
  SendBuffer(const void* begin, std::int64_t size, MemoryKind kind = MemoryKind::kHost)
      : data(static_cast<const std::byte*>(begin)), bytes(size), memory(kind) {}
  // NOLINTNEXTLINE(google-explicit-constructor): a span is a buffer
  SendBuffer(std::span<const std::byte> span)
      : SendBuffer(span.data(), static_cast<std::int64_t>(span.size())) {}
  // NOLINTNEXTLINE(google-explicit-constructor)
  SendBuffer(const std::vector<std::byte>& values) : SendBuffer(std::span(values)) {}
  const std::byte* data = nullptr;
  std::int64_t bytes = 0;
  MemoryKind memory = MemoryKind::kHost;
};
struct ReceiveBuffer {
  ReceiveBuffer() = default;
  ReceiveBuffer(void* begin, std::int64_t size, MemoryKind kind = MemoryKind::kHost)
      : data(static_cast<std::byte*>(begin)), bytes(size), memory(kind) {}
  // NOLINTNEXTLINE(google-explicit-constructor): a span is a buffer
  ReceiveBuffer(std::span<std::byte> span)
      : ReceiveBuffer(span.data(), static_cast<std::int64_t>(span.size())) {}
  // NOLINTNEXTLINE(google-explicit-constructor)
  ReceiveBuffer(std::vector<std::byte>& values) : ReceiveBuffer(std::span(values)) {}
  std::byte* data = nullptr;
  std::int64_t bytes = 0;
  MemoryKind memory = MemoryKind::kHost;
};
// A value of plain data as a buffer.
template <class T>
SendBuffer send_buffer(const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  return {&value, static_cast<std::int64_t>(sizeof(T))};
}
template <class T>
ReceiveBuffer receive_buffer(T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  return {&value, static_cast<std::int64_t>(sizeof(T))};
}

// A send or receive under way. Number 0 is done.
struct Ticket {
  std::uint64_t number = 0;
};

// kControl: what ranks agree on, of a few bytes (comm/control.h). kVote: the same, apart from the
// order of all others; at most kMostVoteBytes.
enum class Traffic : std::uint8_t {
  kMessage,
  kAllToAll,
  kAllGather,
  kBroadcast,
  kBarrier,
  kControl,
  kVote
};
constexpr int kTraffics = 7;
constexpr std::int64_t kMostVoteBytes = 2048;
const char* name_of(Traffic traffic);

// Since the link was made. Bytes are those of buffers, without headers and beats; what a rank sends
// to itself is not counted.
struct ByteCounters {
  std::array<std::int64_t, kTraffics> sent{}, received{};
  double seconds_waited = 0;  // by the calling thread
  std::int64_t all_sent() const;
  std::int64_t tensors_sent() const;  // all but what ranks agree on
  std::int64_t all_received() const;
};

// Another rank has failed, and has told its user why: end quietly with `status`. Not an Error, so
// that what survives errors (a save that is tried again) does not survive this one.
class RankFailed : public std::runtime_error {
 public:
  RankFailed(int rank, int status, const std::string& message)
      : std::runtime_error(message), rank_(rank), status_(status) {}
  int rank() const { return rank_; }
  int status() const { return status_; }

 private:
  int rank_, status_;
};

class Link {
 public:
  virtual ~Link() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual bool moves(MemoryKind kind) const = 0;

  // `to` and `from` may be the calling rank.
  Ticket send(int to, SendBuffer buffer) { return start_send(to, buffer, Traffic::kMessage); }
  Ticket receive(int from, ReceiveBuffer buffer) {
    return start_receive(from, buffer, Traffic::kMessage);
  }
  // A send is done when its buffer may be changed; that says nothing about the receiver.
  virtual bool done(Ticket ticket) = 0;
  virtual void wait(Ticket ticket) = 0;
  // Takes back a receive, as if it had never been started: its buffer is not written any more. For
  // one whose message is not sent because both ranks have stopped; before the other rank sends
  // anything else it must know (by a vote). Returns false, and changes nothing, if a message is
  // there or on its way.
  virtual bool withdraw(Ticket ticket) = 0;
  // For messages in device memory: what the device's stream is given from now on comes after the
  // message, while the caller goes on where the link can do that. Others wait here.
  virtual void wait_on_stream(Ticket ticket) { wait(ticket); }
  // Forgets all messages under way: when it returns, no buffer is written any more. Later calls
  // throw.
  virtual void abandon() noexcept = 0;

  // All ranks call these, in the same order. They return when this rank's part is done.
  // to[r] goes to rank r, from[r] comes from rank r. Sizes may differ, and be 0.
  virtual void all_to_all(std::span<const SendBuffer> to, std::span<const ReceiveBuffer> from);
  // Rank r's `mine` goes to from[r] of every rank. Sizes may differ.
  virtual void all_gather(SendBuffer mine, std::span<const ReceiveBuffer> from);
  // The bytes of rank `root` go to all others. Same size everywhere.
  virtual void broadcast(int root, ReceiveBuffer buffer);
  // Returns when all ranks have called it.
  virtual void barrier();

  virtual ByteCounters counters() const = 0;

  // For operations and links that are made of others: the same, counted as another kind.
  virtual Ticket start_send(int to, SendBuffer buffer, Traffic traffic) = 0;
  virtual Ticket start_receive(int from, ReceiveBuffer buffer, Traffic traffic) = 0;
};

}  // namespace longstride::comm
