#include "plan/calibration_fit.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace longstride {

ProductRates fit_products(const std::vector<TimedProduct>& timed) {
  LS_CHECK(!timed.empty(), "no products");
  ProductRates best;
  double least = std::numeric_limits<double>::infinity();
  // The model has few parameters and is cheap: all pairs are tried.
  for (double half_tiles = 0; half_tiles <= 256; half_tiles = half_tiles * 1.1 + 0.5)
    for (double half_inner = 0; half_inner <= 1024; half_inner = half_inner * 1.1 + 4) {
      const ProductRates shape{1, half_tiles, half_inner};
      double sum = 0, squares = 0;
      for (const TimedProduct& p : timed) {
        const double x = std::log(p.flops() / p.seconds / shape.rate(p.rows, p.inner, p.outer));
        sum += x;
        squares += x * x;
      }
      const double mean = sum / static_cast<double>(timed.size()), error = squares - sum * mean;
      // Strictly better, so that noise alone does not add a cost to small products.
      if (error >= least * (1 - 1e-6)) continue;
      least = error;
      best = {std::exp(mean), half_tiles, half_inner};
    }
  return best;
}

double fit_peak(const std::vector<TimedProduct>& timed, const ProductRates& rates) {
  double predicted = 0, measured = 0;
  for (const TimedProduct& p : timed) {
    predicted += p.flops() / rates.rate(p.rows, p.inner, p.outer);
    measured += p.seconds;
  }
  return rates.peak * predicted / measured;
}

Saturating fit_saturating(const TimedWork& small, const TimedWork& large) {
  // seconds / work = (1 + half / n) / peak: a line in 1 / n.
  const double a = small.seconds / small.work, b = large.seconds / large.work,
               slope = (a - b) / (1 / small.n - 1 / large.n), at_infinity = b - slope / large.n;
  double half = at_infinity > 0 ? slope / at_infinity : small.n;
  half = std::clamp(half, 0.0, small.n);
  return {(1 + half / large.n) / b, half};
}

double remaining_seconds(double seconds, double others) {
  return std::max(seconds - others, seconds / 5);
}

}  // namespace longstride
