// LinkedHeads: the exchange between processes that share a stage's heads, over a link that moves
// host memory. Tensors are copied there and back, and cut there.
//
// Not thread-safe: the thread that runs the step owns it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "train/shared_heads.h"

namespace longstride {

class LinkedHeads final : public HeadExchange {
 public:
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
  Device& device_;
  comm::Link& link_;
  HeadRoom room_;
  HeadCut cut_;
  std::unique_ptr<Memory> memory_;  // what is gathered, or the three below
  std::byte* by_tokens_;            // [S, H, C]
  std::byte* by_process_;           // the same, [H / G, S, G, C]
  std::byte* by_heads_;             // [T, G, C]
  std::vector<comm::SendBuffer> to_;
  std::vector<comm::ReceiveBuffer> from_;
};

}  // namespace longstride
