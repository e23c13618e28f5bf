#include "train/linked_heads.h"

#include <cstring>

#include "base/error.h"

namespace longstride {

LinkedHeads::LinkedHeads(Device& device, comm::Link& link, const HeadRoom& room)
    : device_(device),
      link_(link),
      room_(room),
      cut_({link.size(), link.rank()}),
      memory_(device.allocate_host(host_bytes(room), host_bytes(room), "messages of heads")),
      by_tokens_(memory_->data()),
      by_process_(by_tokens_ + room.slice),
      by_heads_(by_process_ + room.slice) {
  memory_->prepare(0, memory_->bytes());
  const auto processes = static_cast<std::size_t>(link.size());
  to_.resize(processes);
  from_.resize(processes);
}

void LinkedHeads::to_heads(ConstView x_SHC, View y_TGC) {
  cut_.cut(y_TGC, x_SHC, room_.slice);
  const std::int64_t tokens = cut_.slice().tokens, row = cut_.row_bytes();
  const auto processes = static_cast<std::int64_t>(to_.size());
  if (tokens > 0) device_.copy_to_host(by_tokens_, x_SHC.data(), tokens * processes * row);
  for (std::int64_t t = 0; t < tokens; ++t)
    for (std::int64_t r = 0; r < processes; ++r)
      std::memcpy(by_process_ + (r * tokens + t) * row, by_tokens_ + (t * processes + r) * row,
                  static_cast<std::size_t>(row));
  for (std::int64_t r = 0; r < processes; ++r) {
    const auto at = static_cast<std::size_t>(r);
    to_[at] = {by_process_ + r * cut_.slice_bytes(), cut_.slice_bytes()};
    from_[at] = {by_heads_ + cut_.begin_of(r), cut_.bytes_of(r)};
  }
  link_.all_to_all(to_, from_);
  device_.copy_from_host(y_TGC.data(), by_heads_, y_TGC.bytes());
}

void LinkedHeads::to_tokens(ConstView y_TGC, View x_SHC) {
  cut_.cut(y_TGC, x_SHC, room_.slice);
  const std::int64_t tokens = cut_.slice().tokens, row = cut_.row_bytes();
  const auto processes = static_cast<std::int64_t>(to_.size());
  device_.copy_to_host(by_heads_, y_TGC.data(), y_TGC.bytes());
  for (std::int64_t r = 0; r < processes; ++r) {
    const auto at = static_cast<std::size_t>(r);
    to_[at] = {by_heads_ + cut_.begin_of(r), cut_.bytes_of(r)};
    from_[at] = {by_process_ + r * cut_.slice_bytes(), cut_.slice_bytes()};
  }
  link_.all_to_all(to_, from_);
  if (tokens == 0) return device_.zero(x_SHC.data(), x_SHC.bytes());
  for (std::int64_t t = 0; t < tokens; ++t)
    for (std::int64_t r = 0; r < processes; ++r)
      std::memcpy(by_tokens_ + (t * processes + r) * row, by_process_ + (r * tokens + t) * row,
                  static_cast<std::size_t>(row));
  device_.copy_from_host(x_SHC.data(), by_tokens_, x_SHC.bytes());
}

void LinkedHeads::gather(ConstView mine, View all) {
  const std::int64_t each = mine.bytes();
  LS_CHECK(all.bytes() == each * link_.size() && all.bytes() <= room_.gathered,
           "{} bytes of {} processes, {} in all, room for {}", each, link_.size(), all.bytes(),
           room_.gathered);
  std::byte* const here = memory_->data() + link_.rank() * each;
  device_.copy_to_host(here, mine.data(), each);
  for (std::size_t r = 0; r < to_.size(); ++r) {
    const bool other = static_cast<int>(r) != link_.rank();
    to_[r] = {here, other ? each : 0};
    from_[r] = {memory_->data() + static_cast<std::int64_t>(r) * each, other ? each : 0};
  }
  link_.all_to_all(to_, from_);
  device_.copy_from_host(all.data(), memory_->data(), all.bytes());
}

}  // namespace longstride
