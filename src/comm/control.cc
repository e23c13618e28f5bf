#include "comm/control.h"

#include <algorithm>
#include <cstdint>
#include <span>

#include "base/error.h"

namespace longstride::comm {
namespace {

// mine goes to all others; from[r] comes from rank r.
std::vector<Ticket> exchange(Link& link, SendBuffer mine, std::span<const ReceiveBuffer> from,
                             Traffic traffic = Traffic::kControl) {
  std::vector<Ticket> tickets;
  for (int r = 0; r < link.size(); ++r)
    if (r != link.rank())
      tickets.push_back(link.start_receive(r, from[static_cast<std::size_t>(r)], traffic));
  for (int r = 0; r < link.size(); ++r)
    if (r != link.rank()) tickets.push_back(link.start_send(r, mine, traffic));
  return tickets;
}

void wait_for(Link& link, const std::vector<Ticket>& tickets) {
  for (const Ticket ticket : tickets) link.wait(ticket);
}

}  // namespace

void gather_bytes(Link& link, SendBuffer mine, const std::vector<ReceiveBuffer>& all) {
  wait_for(link, exchange(link, mine, all));
}

std::vector<std::string> gather_texts(Link& link, const std::string& mine) {
  const std::vector<std::int64_t> sizes = gather(link, static_cast<std::int64_t>(mine.size()));
  std::vector<std::string> all(sizes.size());
  std::vector<ReceiveBuffer> from;
  for (std::size_t r = 0; r < all.size(); ++r) {
    all[r].resize(static_cast<std::size_t>(sizes[r]));
    from.emplace_back(all[r].data(), sizes[r]);
  }
  wait_for(link, exchange(link, {mine.data(), static_cast<std::int64_t>(mine.size())}, from));
  all[static_cast<std::size_t>(link.rank())] = mine;
  return all;
}

std::string share_text(Link& link, int root, const std::string& text) {
  auto size = static_cast<std::int64_t>(text.size());
  share(link, root, size);
  std::string shared = link.rank() == root ? text : std::string(static_cast<std::size_t>(size), 0);
  share_bytes(link, root, {shared.data(), size});
  return shared;
}

void share_bytes(Link& link, int root, ReceiveBuffer buffer) {
  if (link.rank() != root) return link.wait(link.start_receive(root, buffer, Traffic::kControl));
  std::vector<Ticket> tickets;
  for (int r = 0; r < link.size(); ++r)
    if (r != root)
      tickets.push_back(
          link.start_send(r, {buffer.data, buffer.bytes, buffer.memory}, Traffic::kControl));
  wait_for(link, tickets);
}

int largest(Link& link, int mine) { return std::ranges::max(gather(link, mine)); }

StopVotes::StopVotes(Link& link, int lag) : link_(link), points_(static_cast<std::size_t>(lag)) {
  LS_CHECK(lag >= 1, "a lag of {}", lag);
  for (Point& point : points_) point.votes.resize(static_cast<std::size_t>(link.size()));
}

StopVotes::~StopVotes() {
  if (std::ranges::any_of(points_, [](const Point& point) { return !point.tickets.empty(); }))
    link_.abandon();
}

int StopVotes::look_at(Point& point) {
  if (point.tickets.empty()) return 0;
  wait_for(link_, point.tickets);
  point.tickets.clear();
  return std::max(point.mine, std::ranges::max(point.votes));
}

int StopVotes::pass(int vote) {
  Point& point = points_[next_];
  next_ = (next_ + 1) % points_.size();
  const int agreed = look_at(point);
  point.mine = vote;
  std::ranges::fill(point.votes, 0);
  std::vector<ReceiveBuffer> from;
  for (int& one : point.votes) from.push_back(receive_buffer(one));
  point.tickets = exchange(link_, send_buffer(point.mine), from, Traffic::kVote);
  return agreed;
}

int StopVotes::finish() {
  int agreed = 0;
  for (Point& point : points_) agreed = std::max(agreed, look_at(point));
  return agreed;
}

}  // namespace longstride::comm
