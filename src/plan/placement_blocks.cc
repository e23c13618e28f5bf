#include "plan/placement_blocks.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "base/error.h"

namespace longstride {

WorkspaceTrace part_of(const WorkspaceTrace& trace, const std::vector<std::size_t>& requests) {
  WorkspaceTrace part;
  part.reserve(requests.size());
  for (const std::size_t i : requests) part.push_back(trace[i]);
  return part;
}

MergedTrace merge_equal_lifetimes(const WorkspaceTrace& trace) {
  std::vector<std::tuple<std::int64_t, bool, std::size_t>> events;  // time, begins, request
  for (std::size_t i = 0; i < trace.size(); ++i) {
    events.emplace_back(trace[i].begin, true, i);
    events.emplace_back(trace[i].end, false, i);
  }
  std::sort(events.begin(), events.end());
  // The set of live ones is a largest one where an end follows a begin: counted, they are a clock
  // on which lifetimes are equal more often.
  std::vector<std::int64_t> begins(trace.size()), ends(trace.size());
  std::int64_t clock = 0;
  bool grew = false;
  for (const auto& [time, starts, i] : events) {
    if (grew && !starts) ++clock;
    (starts ? begins : ends)[i] = clock;
    grew = starts;
  }
  MergedTrace merged;
  std::map<std::pair<std::int64_t, std::int64_t>, std::size_t> found;
  for (std::size_t i = 0; i < trace.size(); ++i) {
    const auto [at, is_new] = found.emplace(std::pair{begins[i], ends[i]}, merged.groups.size());
    if (is_new) {
      merged.groups.emplace_back();
      merged.trace.push_back({trace[i].name, 0, begins[i], ends[i]});
    }
    merged.groups[at->second].push_back(i);
    merged.trace[at->second].bytes += aligned_bytes(trace[i].bytes);
  }
  return merged;
}

TwoLevels::TwoLevels(const WorkspaceTrace& trace)
    : trace_(trace), blocks_(find_repeated_blocks(trace)), inside_(blocks_.size()) {}

WorkspaceTrace TwoLevels::inside(std::size_t block) const {
  return part_of(trace_, blocks_[block].copies.front());
}

void TwoLevels::place_block(std::size_t block, Placement placement) {
  inside_[block] = std::move(placement);
}

const WorkspaceTrace& TwoLevels::outside() {
  parts_.clear();
  unmerged_.clear();
  std::vector<bool> in_block(trace_.size());
  for (std::size_t b = 0; b < blocks_.size(); ++b)
    for (std::size_t c = 0; c < blocks_[b].copies.size(); ++c) {
      WorkspaceRequest whole = trace_[blocks_[b].copies[c].front()];
      whole.bytes = inside_[b].bytes;
      for (const std::size_t i : blocks_[b].copies[c]) {
        in_block[i] = true;
        whole.begin = std::min(whole.begin, trace_[i].begin);
        whole.end = std::max(whole.end, trace_[i].end);
      }
      parts_.push_back({.block = b, .copy = c, .is_block = true});
      unmerged_.push_back(std::move(whole));
    }
  for (std::size_t i = 0; i < trace_.size(); ++i) {
    if (in_block[i]) continue;
    parts_.push_back({.request = i});
    unmerged_.push_back(trace_[i]);
  }
  outside_ = merge_equal_lifetimes(unmerged_);
  return outside_.trace;
}

Placement TwoLevels::join(const Placement& outside) const {
  LS_CHECK(outside.offsets.size() == outside_.groups.size(), "{} addresses for {} groups",
           outside.offsets.size(), outside_.groups.size());
  Placement joined{std::vector<std::int64_t>(trace_.size()), outside.bytes};
  for (std::size_t g = 0; g < outside_.groups.size(); ++g) {
    std::int64_t at = outside.offsets[g];
    for (const std::size_t p : outside_.groups[g]) {
      const Part& part = parts_[p];
      if (part.is_block) {
        const std::vector<std::size_t>& copy = blocks_[part.block].copies[part.copy];
        for (std::size_t i = 0; i < copy.size(); ++i)
          joined.offsets[copy[i]] = at + inside_[part.block].offsets[i];
      } else {
        joined.offsets[part.request] = at;
      }
      at += aligned_bytes(unmerged_[p].bytes);
    }
  }
  return joined;
}

}  // namespace longstride
