// The stages before and after one of a pipeline, for the residual stream of a chunk and its
// gradient: [T, D] on the device, in the order of the schedule.
//
// The thread that runs the step calls. A tensor may be used again when a call returns, in the order
// of the device's stream: sent ones are copied, received ones are there once the stream gets to
// them. Calls throw what the link throws.
#pragma once

#include <cstdint>
#include <span>

#include "tensor/view.h"

namespace longstride {

class Neighbours {
 public:
  virtual ~Neighbours() = default;
  // A tensor that the stage will receive: a gradient comes from the stage after, others from that
  // before.
  struct Coming {
    bool is_gradient = false;
    std::int64_t bytes = 0;
  };
  // A sequence begins, which receives these, in this order: they may come ahead of their calls.
  virtual void begin(std::span<const Coming> /*all*/) {}
  // It is over: what it has sent goes before later messages of the link.
  virtual void end() {}
  // The output of the stage before, and its gradient's way back.
  virtual void receive(View x_TD) = 0;
  virtual void send_gradient(ConstView dx_TD) = 0;
  // This stage's output, and its gradient's way back.
  virtual void send(ConstView x_TD) = 0;
  virtual void receive_gradient(View dx_TD) = 0;
};

}  // namespace longstride
