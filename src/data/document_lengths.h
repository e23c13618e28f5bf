// DocumentLengths: a histogram of document lengths; exact, in bounded memory. Not thread-safe:
// each thread fills its own, then they are merged.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace longstride {

class DocumentLengths {
 public:
  void add(std::int64_t length) {
    ++documents_;
    longest_ = std::max(longest_, length);
    if (length < kShort)
      ++short_[static_cast<std::size_t>(length)];
    else
      long_.push_back(length);
  }
  void merge(const DocumentLengths& other) {
    documents_ += other.documents_;
    longest_ = std::max(longest_, other.longest_);
    for (std::size_t i = 0; i < short_.size(); ++i) short_[i] += other.short_[i];
    long_.insert(long_.end(), other.long_.begin(), other.long_.end());
  }
  std::int64_t documents() const { return documents_; }
  std::int64_t longest() const { return longest_; }
  // Half of the documents are this long or shorter; 0 if there are none.
  std::int64_t median() {
    std::int64_t before = (documents_ - 1) / 2;  // documents that come first in order of length
    for (std::size_t length = 0; length < short_.size(); ++length) {
      if (before < short_[length]) return static_cast<std::int64_t>(length);
      before -= short_[length];
    }
    if (long_.empty()) return 0;
    std::nth_element(long_.begin(), long_.begin() + before, long_.end());
    return long_[static_cast<std::size_t>(before)];
  }

 private:
  // Longer ones are stored individually: at most one per 64K tokens.
  static constexpr std::int64_t kShort = std::int64_t{64} << 10;
  std::vector<std::int64_t> short_ = std::vector<std::int64_t>(kShort);
  std::vector<std::int64_t> long_;
  std::int64_t documents_ = 0, longest_ = 0;
};

}  // namespace longstride
