#include "model/workspace.h"

#include "base/error.h"

namespace longstride {

Lease& Lease::operator=(Lease&& other) noexcept {
  if (this == &other) return *this;
  release();
  owner_ = std::exchange(other.owner_, nullptr);
  index_ = other.index_;
  view_ = std::exchange(other.view_, View());
  return *this;
}

void Lease::release() {
  if (Workspace* owner = std::exchange(owner_, nullptr)) owner->give(index_);
  view_ = View();
}

Lease Workspace::take(const char* name, DType dtype, Shape shape) {
  const std::int64_t bytes = bytes_of(dtype, shape);
  const std::size_t index = next_;
  if (recording_) {
    recorded_.push_back({name, bytes, clock_++, -1});
    ++next_, ++live_;
    return {this, index, View(nullptr, dtype, shape)};
  }
  LS_CHECK(trace_ != nullptr, "'{}' taken outside a recording or replay", name);
  LS_CHECK(index < trace_->size() && (*trace_)[index].name == name,
           "request {} is '{}', recorded was '{}'", index, name,
           index < trace_->size() ? (*trace_)[index].name : "nothing");
  LS_CHECK(bytes <= (*trace_)[index].bytes, "'{}' wants {} bytes, recorded were {}", name, bytes,
           (*trace_)[index].bytes);
  ++next_, ++live_;
  return {this, index, View(base_ + offsets_[index], dtype, shape)};
}

void Workspace::give(std::size_t index) {
  --live_;
  if (recording_) recorded_[index].end = clock_++;
}

void Workspace::start_recording() {
  LS_CHECK(!recording_ && trace_ == nullptr && live_ == 0, "workspace is in use");
  recording_ = true;
  clock_ = 0;
  next_ = 0;
  recorded_.clear();
}

WorkspaceTrace Workspace::finish_recording() {
  LS_CHECK(recording_ && live_ == 0, "{} tensors still taken", live_);
  recording_ = false;
  return std::move(recorded_);
}

void Workspace::start_replay(std::byte* base, const WorkspaceTrace& trace,
                             std::span<const std::int64_t> offsets) {
  LS_CHECK(!recording_ && trace_ == nullptr && live_ == 0, "workspace is in use");
  LS_CHECK(trace.size() == offsets.size(), "{} requests, {} offsets", trace.size(), offsets.size());
  base_ = base;
  trace_ = &trace;
  offsets_ = offsets;
  next_ = 0;
}

void Workspace::finish_replay() {
  LS_CHECK(trace_ != nullptr && live_ == 0 && next_ == trace_->size(),
           "replay ended after {} requests with {} still taken", next_, live_);
  trace_ = nullptr;
}

void Workspace::abandon() {
  LS_CHECK(live_ == 0, "{} tensors still taken", live_);
  trace_ = nullptr;
  recording_ = false;
}

}  // namespace longstride
