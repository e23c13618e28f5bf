// The exchange between processes that share a stage's heads: through host memory
// (train/linked_heads.h), or between devices where the link moves their memory
// (train/device_heads.h). Both send the same bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "comm/link.h"
#include "device/device.h"
#include "model/head_exchange.h"
#include "train/message_port.h"

namespace longstride {

// The most bytes of what is exchanged.
struct HeadRoom {
  std::int64_t slice = 0;     // with all query heads
  std::int64_t gathered = 0;  // from all processes together
};

// The messages of an exchange. One has the tokens of a slice and the heads of a process. The slices
// of all follow each other where tokens have the heads of one process, and the heads of all where a
// slice is cut by process.
class HeadCut {
 public:
  explicit HeadCut(const HeadShare& share);
  // For tensors of these shapes, which fit in the room.
  void cut(ConstView y_TGC, ConstView x_SHC, std::int64_t room);

  const TokenSlice& slice() const { return slice_; }
  std::int64_t row_bytes() const { return row_bytes_; }  // of a token with the heads of a process
  std::int64_t slice_bytes() const { return slice_.tokens * row_bytes_; }  // of a message from here
  // Of the slice of a process: where it is in y, and its bytes.
  std::int64_t begin_of(std::int64_t rank) const { return begins_[static_cast<std::size_t>(rank)]; }
  std::int64_t bytes_of(std::int64_t rank) const { return sizes_[static_cast<std::size_t>(rank)]; }

 private:
  HeadShare share_;
  TokenSlice slice_;
  std::int64_t row_bytes_ = 0;
  std::vector<std::int64_t> begins_, sizes_;  // by process
};

// `link`: between these processes, in the order of their heads. `direct`: it moves the memory of
// the device. Device and link must outlive it.
std::unique_ptr<HeadExchange> make_head_exchange(Device& device, comm::Link& link,
                                                 const HeadRoom& room, bool direct = false);
// What it takes of host memory and of the device's own.
PortBytes head_exchange_bytes(const HeadRoom& room, bool direct = false);

}  // namespace longstride
