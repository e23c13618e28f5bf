// Compares a step with the plain reference.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/train/reference_model.h"
#include "tests/train/step_fixture.h"

namespace longstride {

inline double norm_of(const std::vector<double>& v) {
  double squares = 0;
  for (const double x : v) squares += x * x;
  return std::sqrt(squares);
}

// Some gradients are zero except for rounding (the q and k of a window of one), so a tenth of the
// bound is relative to the whole gradient.
inline void expect_like_reference(const StepOutcome& out, const reference::Result& expected,
                                  double bound) {
  EXPECT_NEAR(out.loss(), expected.loss, bound * std::abs(expected.loss));
  double whole = 0;
  for (const auto& [name, gradient] : expected.gradients)
    whole = std::hypot(whole, norm_of(gradient));
  for (std::int64_t i = 0; i < out.gradients->size(); ++i) {
    const std::string& name = out.gradients->specs()[static_cast<std::size_t>(i)].name;
    const View view = out.gradients->view(i);
    const std::vector<double>& right = expected.gradients.at(name);
    std::vector<double> difference(right);
    for (std::size_t e = 0; e < right.size(); ++e)
      difference[e] -= static_cast<double>(view.as<float>()[e]);
    EXPECT_LT(norm_of(difference), bound * norm_of(right) + 0.1 * bound * whole) << name;
  }
}

}  // namespace longstride
