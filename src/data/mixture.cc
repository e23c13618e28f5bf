#include "data/mixture.h"

#include <cmath>
#include <numeric>

#include "base/error.h"

namespace longstride {

Mixture::Mixture(std::span<const double> shares) {
  LS_CHECK(!shares.empty() && shares.size() <= 4096, "{} sources", shares.size());
  constexpr double kDecimals = 1e9;
  std::int64_t divisor = 0;
  for (const double share : shares) {
    LS_CHECK(share >= kLeastShare && share <= kMostShare, "share {}", share);
    shares_.push_back(std::llround(share * kDecimals));
    divisor = std::gcd(divisor, shares_.back());
  }
  LS_CHECK(divisor > 0, "divisor {}", divisor);
  for (std::int64_t& share : shares_) {
    share /= divisor;
    period_ += share;
  }
  counts_.emplace_back(shares_.size(), 0);
}

// Tijdeman's solution of the chairman assignment problem: of the sources that are behind by at
// least 1 / (2n - 2) of a sample, the one takes it that would be first to be behind by too much. No
// source is then ever off by more than 1 - 1 / (2n - 2).
std::size_t Mixture::step(std::int64_t number, std::vector<std::int64_t>& counts) const {
  __extension__ using Wide = __int128;
  const auto sources = static_cast<Wide>(shares_.size());
  if (sources == 1) {
    ++counts[0];
    return 0;
  }
  const Wide slack = 2 * sources - 2;  // all below is times `slack` and the period
  std::size_t best = shares_.size();
  Wide best_room = 0;
  for (std::size_t k = 0; k < shares_.size(); ++k) {
    const Wide behind =
        static_cast<Wide>(shares_[k]) * number - static_cast<Wide>(period_) * counts[k];
    if (slack * behind < period_) continue;
    const Wide room = (slack - 1) * period_ - slack * behind;
    // room / share, without dividing
    if (best == shares_.size() || room * shares_[best] < best_room * shares_[k]) {
      best = k;
      best_room = room;
    }
  }
  LS_CHECK(best < shares_.size(), "no source for sample {}", number);
  ++counts[best];
  return best;
}

std::vector<std::int64_t> Mixture::within_period(std::int64_t samples) {
  const std::int64_t block = samples / kApart;
  while (std::ssize(counts_) <= block) {
    std::vector<std::int64_t> counts = counts_.back();
    const std::int64_t begin = (std::ssize(counts_) - 1) * kApart;
    for (std::int64_t n = begin + 1; n <= begin + kApart; ++n) step(n, counts);
    counts_.push_back(std::move(counts));
  }
  // Positions are mostly asked for one after the other.
  if (recent_at_ > samples || recent_at_ < block * kApart) {
    recent_ = counts_[static_cast<std::size_t>(block)];
    recent_at_ = block * kApart;
  }
  while (recent_at_ < samples) step(++recent_at_, recent_);
  return recent_;
}

Mixture::Place Mixture::at(std::int64_t i) {
  LS_CHECK(i >= 0, "sample {}", i);
  const std::int64_t rest = i % period_;
  std::vector<std::int64_t> counts = within_period(rest);
  const std::size_t source = step(rest + 1, counts);
  return {source, i / period_ * shares_[source] + counts[source] - 1};
}

}  // namespace longstride
