// MessagePort: the way of a stage's tensors between the device and a link. It has the buffers that
// tensors wait in, and copies them; what comes when is train/linked_stages.h's to know.
//
// Three kinds: where the device is host memory a tensor is copied once; else it is staged through
// pinned memory beside computing (train/staged_port.h), unless the link moves device memory itself
// (train/device_port.h).
//
// Not thread-safe: the thread that runs the step owns it. Calls throw what the link throws.
#pragma once

#include <cstdint>
#include <memory>

#include "comm/link.h"
#include "device/device.h"
#include "tensor/view.h"

namespace longstride {

class MessagePort {
 public:
  // Messages that may be on their way to this stage, and from it.
  static constexpr std::int64_t kComing = 2, kLeaving = 2;

  // If messages are under way, abandons the link.
  virtual ~MessagePort() = default;

  // Starts to receive the next message. At most kComing that are not taken.
  virtual void start_receive(int rank, std::int64_t bytes) = 0;
  // The oldest message that was started is in `tensor`, once the device's stream gets there. Waits
  // for the message.
  virtual void take(View tensor) = 0;
  // Receives that are not taken yet.
  virtual std::int64_t receiving() const = 0;
  // `tensor` may be used again, in the order of the device's stream. Waits if kLeaving messages are
  // under way.
  virtual void send(int rank, ConstView tensor) = 0;
  // Returns when all messages have been started: those of the link come after them.
  virtual void flush() {}
  // Waits until everything sent has left, and takes back the receives that are not taken: nobody
  // sends their messages.
  virtual void finish() = 0;

 protected:
  // A receive that nobody sends a message for.
  static void take_back(comm::Link& link, comm::Ticket ticket);
};

// `most_bytes`: of a message. Device and link outlive it.
std::unique_ptr<MessagePort> make_message_port(Device& device, comm::Link& link,
                                               std::int64_t most_bytes);
// What it takes of host memory and of the device's own.
struct PortBytes {
  std::int64_t host = 0, device = 0;
};
// `direct`: the link moves device memory.
PortBytes message_port_bytes(const Device& device, std::int64_t most_bytes, bool direct = false);

}  // namespace longstride
