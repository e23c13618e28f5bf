#include "train/linked_stages.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "train/pipeline_outlook.h"

namespace longstride {

static_assert(kHostLink.send_buffers == LinkedStages::kLeaving &&
              kHostLink.receive_buffers == LinkedStages::kComing);

LinkedStages::LinkedStages(Device& device, comm::Link& link, std::int64_t most_bytes)
    : device_(device), link_(link) {
  for (Buffer& buffer : leaving_) buffer.bytes.resize(static_cast<std::size_t>(most_bytes));
  for (Buffer& buffer : coming_) buffer.bytes.resize(static_cast<std::size_t>(most_bytes));
}

LinkedStages::~LinkedStages() {
  // A step that ended by an exception leaves messages behind.
  const auto on_its_way = [](const Buffer& buffer) { return buffer.ticket.number != 0; };
  if (std::ranges::any_of(leaving_, on_its_way) || std::ranges::any_of(coming_, on_its_way))
    link_.abandon();
}

void LinkedStages::begin(std::span<const Coming> all) {
  LS_CHECK(taken_ == all_coming_.size(), "{} of {} messages were received", taken_,
           all_coming_.size());
  for (const Coming& one : all)
    LS_CHECK(one.bytes <= std::ssize(coming_[0].bytes), "{} bytes, room for {}", one.bytes,
             coming_[0].bytes.size());
  all_coming_.assign(all.begin(), all.end());
  started_ = taken_ = 0;
  start_receives();
}

void LinkedStages::start_receives() {
  for (; started_ < all_coming_.size() && started_ < taken_ + kComing; ++started_) {
    const Coming& next = all_coming_[started_];
    Buffer& buffer = coming(started_);
    buffer.ticket = link_.receive(link_.rank() + (next.is_gradient ? 1 : -1),
                                  {buffer.bytes.data(), next.bytes});
  }
}

void LinkedStages::finish() {
  for (Buffer& buffer : leaving_) link_.wait(std::exchange(buffer.ticket, {}));
  for (; taken_ < started_; ++taken_)
    LS_CHECK(link_.withdraw(std::exchange(coming(taken_).ticket, {})),
             "message {} of {} has come, and nobody wants it", taken_, all_coming_.size());
  all_coming_.clear();
  started_ = taken_ = 0;
}

void LinkedStages::receive_next(bool is_gradient, View tensor) {
  LS_CHECK(taken_ < started_ && all_coming_[taken_].is_gradient == is_gradient &&
               all_coming_[taken_].bytes == tensor.bytes(),
           "{} bytes are expected as message {} of {}", tensor.bytes(), taken_, all_coming_.size());
  Buffer& buffer = coming(taken_);
  link_.wait(std::exchange(buffer.ticket, {}));
  device_.copy_from_host(tensor.data(), buffer.bytes.data(), tensor.bytes());
  ++taken_;
  start_receives();
}

void LinkedStages::send_to(int rank, ConstView tensor) {
  const std::int64_t bytes = tensor.bytes();
  Buffer& buffer = leaving_[sent_++ % kLeaving];
  LS_CHECK(bytes <= std::ssize(buffer.bytes), "{} bytes, room for {}", bytes, buffer.bytes.size());
  link_.wait(std::exchange(buffer.ticket, {}));
  device_.copy_to_host(buffer.bytes.data(), tensor.data(), bytes);
  buffer.ticket = link_.send(rank, {buffer.bytes.data(), bytes});
}

}  // namespace longstride
