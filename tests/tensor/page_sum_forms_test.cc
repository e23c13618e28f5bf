// Forms in which a page could keep sums that grow by an addition per chunk, compared by their
// error: why gradient pages have the form of tensor/page_codes.h, and hot pages beside them.
// Computed in double, apart from the code that the forms have. With LONGSTRIDE_LONG_TESTS it prints
// the table of docs/sparse.md.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "base/random.h"

namespace longstride {
namespace {

constexpr int kRow = 128;  // elements of a row

struct Form {
  const char* name;
  double bytes;       // of an element, scales included
  int levels = 0;     // of integers: the largest
  int mantissa = 0;   // of floating-point numbers: bits after the first
  int exponents = 0;  // that they have below the largest one of a block; 0: any number
  int block = kRow;   // elements that share a scale
  int every = 1;      // additions between two stores
  int hot_share = 0;  // of the pages with the most additions, one in so many is kept as it is
};
constexpr Form kForms[] = {
    {"bf16", 2.0, 0, 7},
    {"int8", 1.016, 127},
    {"int8, blocks of 32", 1.063, 127, 0, 0, 32},
    {"e4m3", 1.016, 0, 3, 15},
    {"e5m2", 1.016, 0, 2, 30},
    {"int8 and a residual of 4 bits", 1.516, 127 * 16},
    {"int8, stored every 16th time", 1.016, 127, 0, 0, kRow, 16},
    {"int8, 1 page in 16 in f32", 1.202, 127, 0, 0, kRow, 1, 16},
};

// x as a multiple of `step`, rounded stochastically.
double rounded(double x, double step, Random& random) {
  return std::floor(x / step + random.uniform()) * step;
}

void store(const Form& form, std::vector<double>& row, Random& random) {
  for (int begin = 0; begin < kRow; begin += form.block) {
    double most = 0;
    for (int i = begin; i < begin + form.block; ++i) most = std::max(most, std::fabs(row[i]));
    if (most == 0) continue;
    for (int i = begin; i < begin + form.block; ++i) {
      double step = most / form.levels;
      if (form.levels == 0) {
        int exponent = std::ilogb(row[i] == 0 ? most : row[i]);
        if (form.exponents > 0) exponent = std::max(exponent, std::ilogb(most) - form.exponents);
        step = std::ldexp(1.0, exponent - form.mantissa);
      }
      row[i] = rounded(row[i], step, random);
    }
  }
}

// Of the pages' sums together. Page p gets additions[p] of them, all alike; it is one row.
double relative_error(const Form& form, const std::vector<int>& additions) {
  Random numbers(1, 31), random(2, 31);
  double wrong = 0, all = 0;
  for (std::size_t p = 0; p < additions.size(); ++p) {
    const bool hot = form.hot_share > 0 && p < additions.size() / form.hot_share;
    std::vector<double> exact(kRow), kept(kRow);
    for (int n = 1; n <= additions[p]; ++n) {
      for (int i = 0; i < kRow; ++i) {
        const double x = numbers.normal();
        exact[i] += x, kept[i] += x;
      }
      if (!hot && (n % form.every == 0 || n == additions[p])) store(form, kept, random);
    }
    for (int i = 0; i < kRow; ++i) {
      wrong += (kept[i] - exact[i]) * (kept[i] - exact[i]);
      all += exact[i] * exact[i];
    }
  }
  return std::sqrt(wrong / all);
}

// Every page gets as many; or the first one `most`, and the others a number that falls with their
// number.
std::vector<int> alike(int additions) { return std::vector<int>(32, additions); }
std::vector<int> skewed(int most) {
  std::vector<int> additions(256);
  for (std::size_t p = 0; p < additions.size(); ++p)
    additions[p] = std::max(1, most / static_cast<int>(p + 1));
  return additions;
}

TEST(PageSumForms, SlowHotPagesInt8IsTheBestOfAByte) {
  const bool print = std::getenv("LONGSTRIDE_LONG_TESTS") != nullptr;
  std::map<std::string, double> even, uneven;
  for (const Form& form : kForms) {
    if (print) fmt::print("| {} | {:.2f} |", form.name, form.bytes);
    for (const int additions : {16, 64, 256, 1024}) {
      even[form.name] = relative_error(form, alike(additions));
      if (print) fmt::print(" {:.1f}% |", 100 * even[form.name]);
    }
    uneven[form.name] = relative_error(form, skewed(1024));
    if (print) fmt::print(" {:.1f}% |\n", 100 * uneven[form.name]);
  }
  EXPECT_LT(even["int8"], even["e4m3"] / 2);
  EXPECT_LT(even["e4m3"], even["e5m2"]);
  EXPECT_GT(even["int8, blocks of 32"], even["int8"] / 1.5) << "small blocks would be worth it";
  EXPECT_LT(uneven["int8, 1 page in 16 in f32"], uneven["int8"] / 4);
  EXPECT_LT(uneven["int8, 1 page in 16 in f32"], uneven["bf16"]);
}

}  // namespace
}  // namespace longstride
