// What ranks agree on: a few bytes each, counted apart from tensors (Traffic::kControl, and kVote
// for votes, which pass by other messages).
//
// All ranks of the link call these, in the same order; they return when this rank knows the result.
#pragma once

#include <string>
#include <type_traits>
#include <vector>

#include "comm/link.h"

namespace longstride::comm {

// Everybody's text, by rank.
std::vector<std::string> gather_texts(Link& link, const std::string& mine);
// The text of rank `root`.
std::string share_text(Link& link, int root, const std::string& text);
// The bytes of rank `root`, of the same size everywhere.
void share_bytes(Link& link, int root, ReceiveBuffer buffer);
// The same for a value of plain data.
template <class T>
void share(Link& link, int root, T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  share_bytes(link, root, receive_buffer(value));
}
// Everybody's `mine` to all[r], for rank r: all of the same size.
void gather_bytes(Link& link, SendBuffer mine, const std::vector<ReceiveBuffer>& all);
// Everybody's value, by rank.
template <class T>
std::vector<T> gather(Link& link, const T& mine) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<T> all(static_cast<std::size_t>(link.size()), mine);
  std::vector<ReceiveBuffer> to;
  for (T& one : all) to.push_back(receive_buffer(one));
  gather_bytes(link, send_buffer(mine), to);
  return all;
}
// The largest of everybody's numbers.
int largest(Link& link, int mine);

// All ranks stop at the same point of their work, without waiting for one another.
//
// The work is a row of points that every rank passes, in the same order. At each one a rank tells
// the others whether it is asked to stop (a number above 0), and learns what everybody said `lag`
// points before. That is the same on all ranks, so all stop at the same point. A large lag costs
// time until the stop; a small one makes ranks that are ahead wait.
class StopVotes {
 public:
  StopVotes(Link& link, int lag);
  StopVotes(const StopVotes&) = delete;
  StopVotes& operator=(const StopVotes&) = delete;
  // Abandons the link if votes are under way: call finish() first, unless an exception ends all.
  ~StopVotes();

  // The largest vote of the point `lag` before this one; 0: go on.
  int pass(int vote);
  // All ranks call it after the same point. The largest vote of all points not looked at yet.
  int finish();

 private:
  struct Point {
    int mine = 0;
    std::vector<int> votes;       // by rank
    std::vector<Ticket> tickets;  // empty: nobody's vote is under way
  };
  int look_at(Point& point);

  Link& link_;
  std::vector<Point> points_;  // a ring
  std::size_t next_ = 0;
};

}  // namespace longstride::comm
