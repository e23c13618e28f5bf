#include "train/linked_stages.h"

#include "base/error.h"
#include "train/pipeline_outlook.h"

namespace longstride {

static_assert(kHostLink.send_buffers == MessagePort::kLeaving &&
              kHostLink.receive_buffers == MessagePort::kComing);

LinkedStages::LinkedStages(Device& device, comm::Link& link, std::int64_t most_bytes)
    : link_(link), port_(make_message_port(device, link, most_bytes)) {}

void LinkedStages::begin(std::span<const Coming> all) {
  LS_CHECK(taken_ == all_coming_.size(), "{} of {} messages were received", taken_,
           all_coming_.size());
  all_coming_.assign(all.begin(), all.end());
  started_ = taken_ = 0;
  start_receives();
}

void LinkedStages::start_receives() {
  for (; started_ < all_coming_.size() && port_->receiving() < MessagePort::kComing; ++started_) {
    const Coming& next = all_coming_[started_];
    port_->start_receive(next.is_gradient ? after() : before(), next.bytes);
  }
}

void LinkedStages::finish() {
  port_->finish();
  all_coming_.clear();
  started_ = taken_ = 0;
}

void LinkedStages::receive_next(bool is_gradient, View tensor) {
  LS_CHECK(taken_ < started_ && all_coming_[taken_].is_gradient == is_gradient &&
               all_coming_[taken_].bytes == tensor.bytes(),
           "{} bytes are expected as message {} of {}", tensor.bytes(), taken_, all_coming_.size());
  port_->take(tensor);
  ++taken_;
  start_receives();
}

}  // namespace longstride
