#include "train/linked_stages.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace longstride {

LinkedStages::LinkedStages(Device& device, comm::Link& link, std::int64_t most_bytes)
    : device_(device), link_(link), coming_(static_cast<std::size_t>(most_bytes)) {
  for (Leaving& leaving : leaving_) leaving.bytes.resize(coming_.size());
}

LinkedStages::~LinkedStages() {
  // A step that ended by an exception leaves messages behind.
  const auto on_its_way = [](const Leaving& leaving) { return leaving.ticket.number != 0; };
  if (std::ranges::any_of(leaving_, on_its_way)) link_.abandon();
}

void LinkedStages::finish() {
  for (Leaving& leaving : leaving_) link_.wait(std::exchange(leaving.ticket, {}));
}

void LinkedStages::receive_from(int rank, View tensor) {
  const std::int64_t bytes = tensor.bytes();
  LS_CHECK(bytes <= std::ssize(coming_), "{} bytes, room for {}", bytes, coming_.size());
  link_.wait(link_.receive(rank, {coming_.data(), bytes}));
  device_.copy_from_host(tensor.data(), coming_.data(), bytes);
}

void LinkedStages::send_to(int rank, ConstView tensor) {
  const std::int64_t bytes = tensor.bytes();
  LS_CHECK(bytes <= std::ssize(coming_), "{} bytes, room for {}", bytes, coming_.size());
  Leaving& leaving = leaving_[std::exchange(next_, 1 - next_)];
  link_.wait(std::exchange(leaving.ticket, {}));
  device_.copy_to_host(leaving.bytes.data(), tensor.data(), bytes);
  leaving.ticket = link_.send(rank, {leaving.bytes.data(), bytes});
}

}  // namespace longstride
