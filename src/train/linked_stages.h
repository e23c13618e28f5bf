// The neighbours of a stage over a link: the stage before is the rank before, the one after the
// rank after. Receives are started ahead, so that messages cross the link while the stage computes;
// a MessagePort has their buffers.
//
// Not thread-safe: the thread that runs the step owns it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "comm/link.h"
#include "device/device.h"
#include "model/neighbours.h"
#include "train/message_port.h"

namespace longstride {

class LinkedStages : public Neighbours {
 public:
  // `most_bytes`: of a chunk's tensor. Device and link must outlive it.
  LinkedStages(Device& device, comm::Link& link, std::int64_t most_bytes);
  LinkedStages(const LinkedStages&) = delete;
  LinkedStages& operator=(const LinkedStages&) = delete;

  void begin(std::span<const Coming> all) override;
  void end() override { port_->flush(); }
  void receive(View x_TD) override { receive_next(false, x_TD); }
  void send_gradient(ConstView dx_TD) override { port_->send(before(), dx_TD); }
  void send(ConstView x_TD) override { port_->send(after(), x_TD); }
  void receive_gradient(View dx_TD) override { receive_next(true, dx_TD); }
  // Waits until everything has left, and takes back receives whose messages will not come. After
  // every sequence, and after one that all stages have left at the same point.
  void finish();

 private:
  int before() const { return link_.rank() - 1; }
  int after() const { return link_.rank() + 1; }
  void receive_next(bool is_gradient, View tensor);
  // Starts the next receives, while there are buffers.
  void start_receives();

  comm::Link& link_;
  std::vector<Coming> all_coming_;       // in the sequence
  std::size_t started_ = 0, taken_ = 0;  // of them
  std::unique_ptr<MessagePort> port_;
};

}  // namespace longstride
