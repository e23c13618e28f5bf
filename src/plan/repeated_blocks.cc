#include "plan/repeated_blocks.h"

#include <algorithm>
#include <utility>

namespace longstride {
namespace {

// A layer requests tens of tensors; a longer block would be too large to solve on its own.
constexpr std::size_t kLongestPeriod = 256;

// Requests [begin, end) repeat after every `period`.
struct Repetition {
  std::size_t begin = 0, end = 0, period = 1;
  std::size_t copies() const { return (end - begin) / period; }
};

class BlockFinder {
 public:
  explicit BlockFinder(const WorkspaceTrace& trace) : trace_(trace) {
    for (std::size_t i = 0; i < trace.size(); ++i)
      if (trace[i].bytes > 0) requests_.push_back(i);
    std::stable_sort(requests_.begin(), requests_.end(),
                     [&](std::size_t a, std::size_t b) { return trace[a].begin < trace[b].begin; });
    for (const std::size_t i : requests_) sizes_.push_back(trace[i].bytes);
  }

  std::vector<RepeatedBlock> find() {
    search(0, requests_.size());
    return std::move(blocks_);
  }

 private:
  void search(std::size_t begin, std::size_t end) {
    const Repetition longest = longest_repetition(begin, end);
    if (longest.copies() < 2) return;
    RepeatedBlock block = best_cut(longest);
    if (!block.copies.empty()) blocks_.push_back(std::move(block));
    search(begin, longest.begin);
    search(longest.end, end);
  }

  // Of equally long ones, that with the shortest period.
  Repetition longest_repetition(std::size_t begin, std::size_t end) const {
    Repetition best{begin, begin};
    for (std::size_t period = 1; period <= kLongestPeriod && 2 * period <= end - begin; ++period) {
      std::size_t run = 0;
      for (std::size_t i = begin; i + period < end; ++i) {
        run = sizes_[i] == sizes_[i + period] ? run + 1 : 0;
        const Repetition here{i + 1 - run, i + 1 + period, period};
        if (run >= period && here.end - here.begin > best.end - best.begin) best = here;
      }
    }
    return best;
  }

  // Copies may begin anywhere in the first period: where most bytes live inside them alone.
  RepeatedBlock best_cut(const Repetition& whole) const {
    RepeatedBlock best;
    std::int64_t most = 0;
    for (std::size_t skipped = 0; skipped < whole.period; ++skipped) {
      const Repetition part{whole.begin + skipped, whole.end, whole.period};
      if (part.copies() < 2) break;
      RepeatedBlock block = cut(part);
      std::int64_t bytes = 0;
      for (const auto& copy : block.copies)
        for (const std::size_t i : copy) bytes += trace_[i].bytes;
      if (bytes <= most) continue;
      most = bytes;
      best = std::move(block);
    }
    return best;
  }

  RepeatedBlock cut(const Repetition& repetition) const {
    const auto request = [&](std::size_t copy, std::size_t at) -> const WorkspaceRequest& {
      return trace_[requests_[repetition.begin + copy * repetition.period + at]];
    };
    // What comes after the last copy does not matter to it.
    const auto lives_inside = [&](std::size_t copy, std::size_t at) {
      return copy + 1 == repetition.copies() || request(copy, at).end <= request(copy + 1, 0).begin;
    };
    RepeatedBlock block;
    block.copies.resize(repetition.copies());
    for (std::size_t at = 0; at < repetition.period; ++at) {
      bool same = true;
      for (std::size_t copy = 0; copy < repetition.copies() && same; ++copy) {
        const auto relative = [&](std::size_t c) {
          const std::int64_t start = request(c, 0).begin;
          return std::pair{request(c, at).begin - start, request(c, at).end - start};
        };
        same = lives_inside(copy, at) && relative(copy) == relative(0);
      }
      for (std::size_t copy = 0; copy < repetition.copies() && same; ++copy)
        block.copies[copy].push_back(requests_[repetition.begin + copy * repetition.period + at]);
    }
    if (block.copies.front().empty()) block.copies.clear();
    return block;
  }

  const WorkspaceTrace& trace_;
  std::vector<std::size_t> requests_;  // of more than 0 bytes, in the order of their begin
  std::vector<std::int64_t> sizes_;    // of the same
  std::vector<RepeatedBlock> blocks_;
};

}  // namespace

std::vector<RepeatedBlock> find_repeated_blocks(const WorkspaceTrace& trace) {
  return BlockFinder(trace).find();
}

}  // namespace longstride
