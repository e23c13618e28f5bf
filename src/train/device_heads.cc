#include "train/device_heads.h"

#include "base/error.h"
#include "ops/elementwise.h"
#include "ops/swap_axes.h"

namespace longstride {

DeviceHeads::DeviceHeads(Device& device, comm::Link& link, const HeadRoom& room)
    : device_(device),
      link_(link),
      room_(room),
      cut_({link.size(), link.rank()}),
      by_process_(device.allocate(device_bytes(room), "messages of heads")) {
  tickets_.reserve(2 * static_cast<std::size_t>(link.size()));
}

DeviceHeads::~DeviceHeads() {
  // An exception has ended the step between two messages.
  if (!tickets_.empty()) link_.abandon();
}

template <class To, class From>
void DeviceHeads::start(const To& to, const From& from) {
  const int n = link_.size(), rank = link_.rank();
  // Each begins with its neighbour.
  for (int i = 1; i < n; ++i) {
    const int source = (rank - i + n) % n, target = (rank + i) % n;
    if (const comm::ReceiveBuffer coming = from(source); coming.bytes > 0)
      tickets_.push_back(link_.start_receive(source, coming, comm::Traffic::kAllToAll));
    if (const comm::SendBuffer leaving = to(target); leaving.bytes > 0)
      tickets_.push_back(link_.start_send(target, leaving, comm::Traffic::kAllToAll));
  }
}

void DeviceHeads::settle() {
  for (const comm::Ticket ticket : tickets_) link_.wait_on_stream(ticket);
  tickets_.clear();
}

View DeviceHeads::in_buffer(ConstView like_TGC, std::int64_t first, std::int64_t processes) const {
  return {by_process_->data() + first * cut_.slice_bytes(),
          like_TGC.dtype(),
          {processes, cut_.slice().tokens, like_TGC.dim(1) * like_TGC.dim(2)}};
}

void DeviceHeads::to_heads(ConstView x_SHC, View y_TGC) {
  cut_.cut(y_TGC, x_SHC, room_.slice);
  const std::int64_t tokens = cut_.slice().tokens, row = y_TGC.dim(1) * y_TGC.dim(2);
  const HeadShare here = share();
  if (tokens > 0)
    ops::swap_axes(device_.stream(),
                   {x_SHC.reshaped({tokens, here.ranks, row}), in_buffer(y_TGC, 0, here.ranks)});
  auto* const y = static_cast<std::byte*>(y_TGC.data());
  start(
      [&](int r) {
        return comm::SendBuffer(by_process_->data() + r * cut_.slice_bytes(), cut_.slice_bytes(),
                                comm::MemoryKind::kDevice);
      },
      [&](int r) {
        return comm::ReceiveBuffer(y + cut_.begin_of(r), cut_.bytes_of(r),
                                   comm::MemoryKind::kDevice);
      });
  if (tokens > 0)
    ops::convert(device_.stream(),
                 {in_buffer(y_TGC, here.rank, 1),
                  y_TGC.rows(cut_.slice().begin, tokens).reshaped({1, tokens, row})});
  settle();
}

void DeviceHeads::to_tokens(ConstView y_TGC, View x_SHC) {
  cut_.cut(y_TGC, x_SHC, room_.slice);
  const std::int64_t tokens = cut_.slice().tokens, row = y_TGC.dim(1) * y_TGC.dim(2);
  const HeadShare here = share();
  const auto* const y = static_cast<const std::byte*>(y_TGC.data());
  start(
      [&](int r) {
        return comm::SendBuffer(y + cut_.begin_of(r), cut_.bytes_of(r), comm::MemoryKind::kDevice);
      },
      [&](int r) {
        return comm::ReceiveBuffer(by_process_->data() + r * cut_.slice_bytes(), cut_.slice_bytes(),
                                   comm::MemoryKind::kDevice);
      });
  if (tokens > 0)
    ops::convert(device_.stream(),
                 {y_TGC.rows(cut_.slice().begin, tokens).reshaped({1, tokens, row}),
                  in_buffer(y_TGC, here.rank, 1)});
  settle();
  if (tokens == 0) return device_.zero(x_SHC.data(), x_SHC.bytes());
  ops::swap_axes(device_.stream(),
                 {in_buffer(y_TGC, 0, here.ranks), x_SHC.reshaped({tokens, here.ranks, row})});
}

void DeviceHeads::gather(ConstView mine, View all) {
  const std::int64_t each = mine.bytes();
  const HeadShare here = share();
  LS_CHECK(all.bytes() == each * here.ranks, "{} bytes of {} processes, {} in all", each,
           here.ranks, all.bytes());
  const View rows = all.reshaped({here.ranks, mine.elements()});
  start([&](int) { return comm::SendBuffer(mine.data(), each, comm::MemoryKind::kDevice); },
        [&](int r) {
          return comm::ReceiveBuffer(rows.rows(r, 1).data(), each, comm::MemoryKind::kDevice);
        });
  ops::convert(device_.stream(), {mine.reshaped({1, mine.elements()}), rows.rows(here.rank, 1)});
  settle();
}

}  // namespace longstride
