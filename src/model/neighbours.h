// The stages before and after one of a pipeline, for the residual stream of a chunk and its
// gradient: [T, D] on the device, in the order of the schedule.
//
// The thread that runs the step calls. A tensor may be used again when a call returns: sent ones
// are copied, received ones are there once the device's stream gets to them. Calls throw what the
// link throws.
#pragma once

#include "tensor/view.h"

namespace longstride {

class Neighbours {
 public:
  virtual ~Neighbours() = default;
  // The output of the stage before, and its gradient's way back.
  virtual void receive(View x_TD) = 0;
  virtual void send_gradient(ConstView dx_TD) = 0;
  // This stage's output, and its gradient's way back.
  virtual void send(ConstView x_TD) = 0;
  virtual void receive_gradient(View dx_TD) = 0;
};

}  // namespace longstride
