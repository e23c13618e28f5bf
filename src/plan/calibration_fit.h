// From measured times to the figures of MachineRates: the inverse of plan/cost_seconds.h. Pure
// functions. Times are noisy, so that every result is kept within bounds that make sense.
#pragma once

#include <vector>

#include "plan/machine_rates.h"

namespace longstride {

struct TimedProduct {
  double rows = 0, inner = 0, outer = 0, seconds = 0;
  double flops() const { return 2 * rows * inner * outer; }
};
// The rates that come nearest to all of them, in the logarithm.
ProductRates fit_products(const std::vector<TimedProduct>& timed);
// The peak in place of rates.peak with which these take as long as they did, together.
double fit_peak(const std::vector<TimedProduct>& timed, const ProductRates& rates);

// A rate of peak * n / (n + half) for work that is proportional to n, from two sizes.
struct Saturating {
  double peak = 0, half = 0;
};
struct TimedWork {
  double n = 0, work = 0, seconds = 0;
};
// `small` has the smaller n. half is at most small.n.
Saturating fit_saturating(const TimedWork& small, const TimedWork& large);

// What is left of `seconds` after `others`, which were measured apart: at least a fifth of it.
double remaining_seconds(double seconds, double others);

}  // namespace longstride
