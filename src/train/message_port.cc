#include "train/message_port.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "base/trace_spans.h"
#include "train/device_port.h"
#include "train/staged_port.h"

namespace longstride {
namespace {

// Where the device is host memory.
class HostPort final : public MessagePort {
 public:
  HostPort(Device& device, comm::Link& link, std::int64_t most_bytes)
      : device_(device),
        link_(link),
        room_(most_bytes),
        memory_(device.allocate_host(host_bytes(most_bytes), most_bytes, "messages")) {
    memory_->prepare(0, memory_->bytes());
    std::byte* next = memory_->data();
    for (Buffer& buffer : coming_) buffer.data = std::exchange(next, next + room_);
    for (Buffer& buffer : leaving_) buffer.data = std::exchange(next, next + room_);
  }
  static std::int64_t host_bytes(std::int64_t most_bytes) {
    return (kComing + kLeaving) * most_bytes;
  }
  HostPort(const HostPort&) = delete;
  HostPort& operator=(const HostPort&) = delete;
  ~HostPort() override {
    // A step that ended by an exception leaves messages behind.
    const auto under_way = [](const Buffer& buffer) { return buffer.ticket.number != 0; };
    if (std::ranges::any_of(leaving_, under_way) || std::ranges::any_of(coming_, under_way))
      link_.abandon();
  }

  void start_receive(int rank, std::int64_t bytes) override {
    Buffer& buffer = coming_[started_++ % kComing];
    check_room(bytes);
    buffer.ticket = link_.receive(rank, {buffer.data, bytes});
    buffer.rank = rank;
  }
  void take(View tensor) override {
    Buffer& buffer = coming_[taken_++ % kComing];
    wait(buffer);
    device_.copy_from_host(tensor.data(), buffer.data, tensor.bytes());
  }
  std::int64_t receiving() const override { return static_cast<std::int64_t>(started_ - taken_); }

  void send(int rank, ConstView tensor) override {
    Buffer& buffer = leaving_[sent_++ % kLeaving];
    check_room(tensor.bytes());
    wait(buffer);
    device_.copy_to_host(buffer.data, tensor.data(), tensor.bytes());
    buffer.ticket = link_.send(rank, {buffer.data, tensor.bytes()});
    buffer.rank = rank;
  }

  void finish() override {
    for (Buffer& buffer : leaving_) wait(buffer);
    for (; taken_ < started_; ++taken_)
      take_back(link_, std::exchange(coming_[taken_ % kComing].ticket, {}));
  }

 private:
  struct Buffer {
    std::byte* data = nullptr;
    comm::Ticket ticket;
    int rank = 0;
  };
  void check_room(std::int64_t bytes) const {
    LS_CHECK(bytes <= room_, "{} bytes, room for {}", bytes, room_);
  }
  void wait(Buffer& buffer) {
    if (buffer.ticket.number == 0) return;
    const TraceSpan span(TraceTrack::kMessages, {.what = "wait for rank", .number = buffer.rank});
    link_.wait(std::exchange(buffer.ticket, {}));
  }

  Device& device_;
  comm::Link& link_;
  std::int64_t room_;  // of a buffer
  std::unique_ptr<Memory> memory_;
  std::array<Buffer, kComing> coming_;
  std::array<Buffer, kLeaving> leaving_;
  std::size_t started_ = 0, taken_ = 0, sent_ = 0;
};

}  // namespace

void MessagePort::take_back(comm::Link& link, comm::Ticket ticket) {
  LS_CHECK(link.withdraw(ticket), "a message has come that nobody wants");
}

std::unique_ptr<MessagePort> make_message_port(Device& device, comm::Link& link,
                                               std::int64_t most_bytes) {
  LS_CHECK(link.moves(comm::MemoryKind::kHost) && link.moves(comm::MemoryKind::kPinned),
           "the link does not move host memory");
  if (device.shares_host_memory()) return std::make_unique<HostPort>(device, link, most_bytes);
  if (link.moves(comm::MemoryKind::kDevice))
    return std::make_unique<DevicePort>(device, link, most_bytes);
  return std::make_unique<StagedPort>(device, link, most_bytes);
}

PortBytes message_port_bytes(const Device& device, std::int64_t most_bytes, bool direct) {
  if (device.shares_host_memory()) return {HostPort::host_bytes(most_bytes), 0};
  return direct ? DevicePort::bytes(most_bytes) : StagedPort::bytes(most_bytes);
}

}  // namespace longstride
