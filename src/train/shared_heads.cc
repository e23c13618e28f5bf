#include "train/shared_heads.h"

#include "base/error.h"
#include "train/device_heads.h"
#include "train/linked_heads.h"

namespace longstride {

HeadCut::HeadCut(const HeadShare& share)
    : share_(share),
      begins_(static_cast<std::size_t>(share.ranks)),
      sizes_(static_cast<std::size_t>(share.ranks)) {}

void HeadCut::cut(ConstView y_TGC, ConstView x_SHC, std::int64_t room) {
  const std::int64_t T = y_TGC.dim(0);
  slice_ = share_.slice(T);
  LS_CHECK(x_SHC.dim(0) == slice_.rows && x_SHC.dim(1) == y_TGC.dim(1) * share_.ranks &&
               x_SHC.dim(2) == y_TGC.dim(2) && x_SHC.dtype() == y_TGC.dtype(),
           "{} of slice {} of {} is not {} with all heads", x_SHC.shape().to_string(), share_.rank,
           share_.ranks, y_TGC.shape().to_string());
  LS_CHECK(x_SHC.bytes() <= room && y_TGC.bytes() <= room, "{} and {} bytes, room for {}",
           x_SHC.bytes(), y_TGC.bytes(), room);
  row_bytes_ = y_TGC.bytes() / T;
  for (std::int64_t r = 0; r < share_.ranks; ++r) {
    const TokenSlice slice = share_.slice_of(r, T);
    begins_[static_cast<std::size_t>(r)] = slice.begin * row_bytes_;
    sizes_[static_cast<std::size_t>(r)] = slice.tokens * row_bytes_;
  }
}

std::unique_ptr<HeadExchange> make_head_exchange(Device& device, comm::Link& link,
                                                 const HeadRoom& room, bool direct) {
  if (direct) return std::make_unique<DeviceHeads>(device, link, room);
  return std::make_unique<LinkedHeads>(device, link, room);
}

PortBytes head_exchange_bytes(const HeadRoom& room, bool direct) {
  if (direct) return {0, DeviceHeads::device_bytes(room)};
  return {LinkedHeads::host_bytes(room), 0};
}

}  // namespace longstride
