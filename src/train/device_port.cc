#include "train/device_port.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "ops/elementwise.h"

namespace longstride {

DevicePort::DevicePort(Device& device, comm::Link& link, std::int64_t most_bytes)
    : device_(device),
      link_(link),
      room_(most_bytes),
      memory_(device.allocate(kLeaving * most_bytes, "messages")) {}

DevicePort::~DevicePort() {
  // A step that ended by an exception leaves messages behind.
  if (std::ranges::any_of(leaving_, [](comm::Ticket ticket) { return ticket.number != 0; }))
    link_.abandon();
}

void DevicePort::start_receive(int rank, std::int64_t bytes) {
  LS_CHECK(receiving() < kComing, "{} messages are expected", receiving());
  coming_[started_++ % kComing] = {rank, bytes};
}

void DevicePort::take(View tensor) {
  const Expected& expected = coming_[taken_ % kComing];
  LS_CHECK(receiving() > 0 && tensor.bytes() == expected.bytes, "{} bytes of {} are taken",
           tensor.bytes(), expected.bytes);
  ++taken_;
  link_.wait_on_stream(
      link_.receive(expected.rank, {tensor.data(), tensor.bytes(), comm::MemoryKind::kDevice}));
}

void DevicePort::send(int rank, ConstView tensor) {
  LS_CHECK(tensor.bytes() <= room_, "{} bytes, room for {}", tensor.bytes(), room_);
  const std::size_t at = sent_++ % kLeaving;
  if (comm::Ticket& before = leaving_[at]; before.number != 0)
    link_.wait_on_stream(std::exchange(before, {}));
  const View buffer(memory_->data() + static_cast<std::int64_t>(at) * room_, tensor.dtype(),
                    tensor.shape());
  ops::convert(device_.stream(), {tensor, buffer});
  leaving_[at] = link_.send(rank, {buffer.data(), buffer.bytes(), comm::MemoryKind::kDevice});
}

void DevicePort::finish() {
  for (comm::Ticket& ticket : leaving_)
    if (ticket.number != 0) link_.wait(std::exchange(ticket, {}));
  taken_ = started_;  // nothing was started
}

}  // namespace longstride
