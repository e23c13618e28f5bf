// The exchange between processes that share a stage's heads, over a link. Tensors go through host
// memory.
//
// Not thread-safe: the thread that runs the step owns it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "comm/link.h"
#include "device/device.h"
#include "model/head_exchange.h"

namespace longstride {

// The most bytes of what is exchanged.
struct HeadRoom {
  std::int64_t slice = 0;     // with all query heads
  std::int64_t gathered = 0;  // from all processes together
};

class LinkedHeads final : public HeadExchange {
 public:
  // `link`: between these processes, in the order of their heads. Device and link must outlive it.
  LinkedHeads(Device& device, comm::Link& link, const HeadRoom& room);
  // Of host memory, that one takes.
  static std::int64_t host_bytes(const HeadRoom& room) {
    return std::max(3 * room.slice, room.gathered);
  }

  HeadShare share() const override { return {link_.size(), link_.rank()}; }
  void to_heads(ConstView x_SHC, View y_TGC) override;
  void to_tokens(ConstView y_TGC, View x_SHC) override;
  void gather(ConstView mine, View all) override;

 private:
  // Messages of an exchange. One of a slice has the tokens of that slice and the heads of a
  // process; the slices of all follow each other in `by_heads_`, the heads of all in `by_process_`.
  struct Cut {
    TokenSlice slice;
    std::int64_t row_bytes = 0;                 // of a token with the heads of a process
    std::vector<std::int64_t> in_heads, sizes;  // by process: where its slice is, and its bytes
    std::int64_t slice_bytes() const { return slice.tokens * row_bytes; }
  };
  Cut& cut(ConstView y_TGC, ConstView x_SHC);

  Device& device_;
  comm::Link& link_;
  Cut cut_;
  HeadRoom room_;
  std::unique_ptr<Memory> memory_;  // what is gathered, or the three below
  std::byte* by_tokens_;            // [S, H, C]
  std::byte* by_process_;           // the same, [H / G, S, G, C]
  std::byte* by_heads_;             // [T, G, C]
  std::vector<comm::SendBuffer> to_;
  std::vector<comm::ReceiveBuffer> from_;
};

}  // namespace longstride
