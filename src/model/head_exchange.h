// The processes that share a stage's heads (schedule/head_share.h): tensors of a slice's tokens and
// all heads become those of all tokens and this process's heads, and back. What each has found out
// with its heads is gathered on all.
//
//   T tokens of the chunk   S rows of a slice   H heads   G of a process   C head size
//
// All processes call the same functions in the same order, with as many heads and tokens. The
// thread that runs the step calls. A tensor may be used again when a call returns, as with
// Neighbours.
#pragma once

#include "schedule/head_share.h"
#include "tensor/view.h"

namespace longstride {

class HeadExchange {
 public:
  virtual ~HeadExchange() = default;
  virtual HeadShare share() const = 0;
  virtual void to_heads(ConstView x_SHC, View y_TGC) = 0;
  // A row that counts for nothing becomes 0.
  virtual void to_tokens(ConstView y_TGC, View x_SHC) = 0;
  // all[r] = process r's `mine`, of one shape everywhere. Nothing is added: who sums them in their
  // order has the same bits on every process.
  virtual void gather(ConstView mine, View all) = 0;
};

}  // namespace longstride
