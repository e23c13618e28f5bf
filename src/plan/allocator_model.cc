#include "plan/allocator_model.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "plan/step_plan.h"

namespace longstride {
namespace {

constexpr std::int64_t kMiB = 1 << 20;
constexpr std::int64_t kRounding = 512, kLargestSmall = kMiB, kSmallSegment = 2 * kMiB,
                       kLargestShared = 10 * kMiB, kSharedSegment = 20 * kMiB,
                       kSegmentRounding = 2 * kMiB;

std::int64_t round_up(std::int64_t bytes, std::int64_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

std::int64_t segment_bytes(std::int64_t bytes) {
  if (bytes <= kLargestSmall) return kSmallSegment;
  if (bytes < kLargestShared) return kSharedSegment;
  return round_up(bytes, kSegmentRounding);
}

bool is_worth_keeping(std::int64_t rest, bool small) {
  return small ? rest >= kRounding : rest > kLargestSmall;
}

void replay(AllocatorModel& model, const WorkspaceTrace& trace) {
  struct Event {
    std::int64_t time;
    bool starts;
    std::size_t request;
  };
  std::vector<Event> events;
  for (std::size_t i = 0; i < trace.size(); ++i) {
    if (trace[i].bytes == 0) continue;
    events.push_back({trace[i].begin, true, i});
    events.push_back({trace[i].end, false, i});
  }
  std::sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
    return std::tie(a.time, a.starts, a.request) < std::tie(b.time, b.starts, b.request);
  });
  std::vector<AllocatorModel::Block> blocks(trace.size());
  for (const Event& e : events) {
    if (e.starts)
      blocks[e.request] = model.allocate(trace[e.request].bytes);
    else
      model.free(blocks[e.request]);
  }
}

}  // namespace

void AllocatorModel::add_free(Block block) {
  const Stretch& s = stretches_[block];
  pool(s.small).emplace(s.bytes, s.address, block);
}

void AllocatorModel::remove_free(Block block) {
  const Stretch& s = stretches_[block];
  pool(s.small).erase({s.bytes, s.address, block});
}

AllocatorModel::Block AllocatorModel::add_segment(std::int64_t bytes, bool small) {
  stretches_.push_back({.address = next_address_, .bytes = bytes, .small = small});
  next_address_ += bytes;
  reserved_ += bytes;
  add_free(stretches_.size() - 1);
  return stretches_.size() - 1;
}

AllocatorModel::Block AllocatorModel::allocate(std::int64_t bytes) {
  LS_CHECK(bytes > 0, "{} bytes", bytes);
  const std::int64_t size = round_up(bytes, kRounding);
  const bool small = size <= kLargestSmall;
  const auto found = pool(small).lower_bound({size, 0, 0});
  const Block block =
      found != pool(small).end() ? std::get<2>(*found) : add_segment(segment_bytes(size), small);
  remove_free(block);
  const std::int64_t rest = stretches_[block].bytes - size;
  if (is_worth_keeping(rest, small)) {
    Block other = stretches_.size();
    if (unused_.empty()) {
      stretches_.emplace_back();
    } else {
      other = unused_.back();
      unused_.pop_back();
    }
    Stretch& first = stretches_[block];
    stretches_[other] = {.address = first.address + size,
                         .bytes = rest,
                         .small = small,
                         .before = block,
                         .after = first.after};
    if (first.after != kNone) stretches_[first.after].before = other;
    first.after = other;
    first.bytes = size;
    add_free(other);
  }
  stretches_[block].in_use = true;
  allocated_ += stretches_[block].bytes;
  peak_allocated_ = std::max(peak_allocated_, allocated_);
  return block;
}

void AllocatorModel::absorb_next(Block block) {
  const Block next = stretches_[block].after;
  remove_free(next);
  stretches_[block].bytes += stretches_[next].bytes;
  stretches_[block].after = stretches_[next].after;
  if (stretches_[block].after != kNone) stretches_[stretches_[block].after].before = block;
  unused_.push_back(next);
}

void AllocatorModel::free(Block block) {
  LS_CHECK(block < stretches_.size() && stretches_[block].in_use, "block {} is not in use", block);
  const auto is_free = [&](Block b) { return b != kNone && !stretches_[b].in_use; };
  stretches_[block].in_use = false;
  allocated_ -= stretches_[block].bytes;
  if (is_free(stretches_[block].after)) absorb_next(block);
  if (const Block before = stretches_[block].before; is_free(before)) {
    remove_free(before);
    add_free(block);
    absorb_next(before);
    block = before;
  }
  add_free(block);
}

AllocatorUse simulate_allocator(std::span<const WorkspaceTrace* const> episodes) {
  AllocatorModel model;
  // Between episodes all segments are free and whole: an episode that was replayed with the same
  // segments, and needed no other, changes nothing.
  std::map<const WorkspaceTrace*, std::int64_t> reserved;
  for (bool grew = true; grew;) {
    grew = false;
    for (const WorkspaceTrace* trace : episodes) {
      const std::int64_t before = model.reserved();
      const auto [last, is_first] = reserved.emplace(trace, before);
      if (!is_first && last->second == before) continue;
      replay(model, *trace);
      last->second = before;
      grew = grew || model.reserved() > before;
    }
  }
  return {model.reserved(), model.peak_allocated()};
}

AllocatorUse simulate_allocator(const StepPlan& plan) {
  std::vector<const WorkspaceTrace*> episodes;
  for (const Episode& episode : make_step_schedule(plan.layout(), plan.schedule).episodes)
    episodes.push_back(&plan.placed(episode).trace);
  return simulate_allocator(episodes);
}

}  // namespace longstride
