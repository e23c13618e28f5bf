#include "comm/sub_link.h"

#include <utility>

#include "base/error.h"

namespace longstride::comm {

SubLink::SubLink(Link& whole, std::vector<int> members)
    : whole_(whole), members_(std::move(members)) {
  std::vector<bool> seen(static_cast<std::size_t>(whole.size()), false);
  for (int i = 0; i < size(); ++i) {
    const int one = members_[static_cast<std::size_t>(i)];
    LS_CHECK(one >= 0 && one < whole.size(), "rank {} of {}", one, whole.size());
    LS_CHECK(!seen[static_cast<std::size_t>(one)], "rank {} twice", one);
    seen[static_cast<std::size_t>(one)] = true;
    if (one == whole.rank()) rank_ = i;
  }
  LS_CHECK(rank_ >= 0, "rank {} is not in its group", whole.rank());
}

int SubLink::member(int rank) const {
  LS_CHECK(rank >= 0 && rank < size(), "rank {} of {}", rank, size());
  return members_[static_cast<std::size_t>(rank)];
}

Ticket SubLink::start_send(int to, SendBuffer buffer, Traffic traffic) {
  return whole_.start_send(member(to), buffer, traffic);
}

Ticket SubLink::start_receive(int from, ReceiveBuffer buffer, Traffic traffic) {
  return whole_.start_receive(member(from), buffer, traffic);
}

}  // namespace longstride::comm
