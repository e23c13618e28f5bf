// Mixture: which source each sample of a mix comes from.
//
// After any number of samples, every source has given its share of them to within one sample.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace longstride {

// Not thread-safe: it remembers what it has counted.
class Mixture {
 public:
  // The shares are relative, used to nine decimals: 0.7 and 0.3, or 7 and 3. Each is at least
  // kLeastShare and at most kMostShare, which the configuration checks.
  explicit Mixture(std::span<const double> shares);
  static constexpr double kLeastShare = 1e-6, kMostShare = 1e6;

  struct Place {
    std::size_t source = 0;
    std::int64_t index = 0;  // how many samples of the source come before
  };
  // A pure function of i >= 0. Quick if i was, or nearly was, asked for before; the first time it
  // takes time in proportion to i, at most one period: the sum of the shares as the smallest whole
  // numbers.
  Place at(std::int64_t i);

 private:
  // How many of the first `samples` <= period_ come from each source.
  std::vector<std::int64_t> within_period(std::int64_t samples);
  // Adds the sample of number n (from 1) to the counts; returns its source.
  std::size_t step(std::int64_t n, std::vector<std::int64_t>& counts) const;

  std::vector<std::int64_t> shares_;  // whole numbers without a common divisor
  std::int64_t period_ = 0;           // their sum: afterwards all shares are exact
  // Samples of each source after 0, kApart, 2 kApart, ... samples of a period.
  static constexpr std::int64_t kApart = 1024;
  std::vector<std::vector<std::int64_t>> counts_;
  // Likewise after the number of samples that was asked for last.
  std::vector<std::int64_t> recent_;
  std::int64_t recent_at_ = -1;
};

}  // namespace longstride
