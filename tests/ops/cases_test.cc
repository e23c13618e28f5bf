// Tests the conformance suite itself: a wrong operation must not pass its checks.
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "ops/cases/registry.h"
#include "ops/cases/run.h"

namespace longstride::ops {
namespace {

// y = 2 x, with the gradient of `loss` in dx; each test breaks `run`.
Problem twice(const std::function<void(float* x, float* y, float* dx)>& broken) {
  Problem p;
  p.input("x", DType::kF32, {4});
  p.output("y", DType::kF32, {4});
  p.update("dx", DType::kF32, {4});
  p.run = [=](Stream&, const Bound& v) {
    auto *x = v("x").as<float>(), *y = v("y").as<float>(), *dx = v("dx").as<float>();
    for (int i = 0; i < 4; ++i) {
      y[i] = 2 * x[i];
      dx[i] += 2;
    }
    broken(x, y, dx);
  };
  p.reference = [](Values& v) {
    for (std::size_t i = 0; i < 4; ++i) {
      v["y"][i] = 2 * v["x"][i];
      v["dx"][i] += 2;
    }
  };
  p.loss = [](const Values& v) {
    double sum = 0;
    for (double x : v.at("x")) sum += 2 * x;
    return sum;
  };
  p.gradients = {{"x", "dx"}};
  return p;
}

class Cases : public testing::Test {
 protected:
  std::unique_ptr<Device> device_ = make_cpu_device();
};

TEST_F(Cases, AcceptWhatIsRight) {
  const Problem p = twice([](float*, float*, float*) {});
  const Outcome outcome = run_problem(*device_, p);
  EXPECT_TRUE(compare_with_reference(p, outcome).empty());
  EXPECT_TRUE(compare_with_differences(p, outcome).empty());
}

TEST_F(Cases, RefuseAWrongElement) {
  const Problem p = twice([](float*, float* y, float*) { y[3] += 1e-4f; });
  EXPECT_EQ(compare_with_reference(p, run_problem(*device_, p)).size(), 1u);
}

TEST_F(Cases, RefuseAnElementThatWasNotWritten) {
  const Problem p =
      twice([](float*, float* y, float*) { y[1] = -std::numeric_limits<float>::quiet_NaN(); });
  EXPECT_EQ(compare_with_reference(p, run_problem(*device_, p)).size(), 1u);
}

TEST_F(Cases, RefuseAChangedInput) {
  const Problem p = twice([](float* x, float*, float*) { x[0] += 1; });
  EXPECT_EQ(compare_with_reference(p, run_problem(*device_, p)).size(), 1u);
}

TEST_F(Cases, RefuseAWriteOutside) {
  const Problem p = twice([](float*, float* y, float*) { y[4] = 0; });
  EXPECT_THROW(run_problem(*device_, p), InternalError);
}

TEST_F(Cases, RefuseAWrongGradient) {
  const Problem p = twice([](float*, float*, float* dx) { dx[2] *= 1.01f; });
  EXPECT_EQ(compare_with_differences(p, run_problem(*device_, p)).size(), 1u);
}

TEST_F(Cases, RefuseOtherBitsWithoutAnOptionalUpdate) {
  for (const bool broken : {false, true}) {
    Problem p = twice([](float*, float*, float*) {});
    p.optional = {"dx"};
    p.run = [broken](Stream&, const Bound& v) {
      const View dx = v("dx");
      for (int i = 0; i < 4; ++i) {
        v("y").as<float>()[i] = 2 * v("x").as<float>()[i];
        if (dx.present()) dx.as<float>()[i] += 2;
      }
      if (broken && !dx.present()) v("y").as<float>()[0] += 1e-6f;
    };
    const Outcome outcome = run_problem(*device_, p);
    EXPECT_EQ(compare_without_optional(*device_, p, outcome).size(), broken ? 1u : 0u);
  }
}

TEST_F(Cases, EveryOperationHasTestsAndBenchmarks) {
  EXPECT_GE(op_cases().size(), 14u);
  for (const OpCase& op : op_cases()) {
    EXPECT_FALSE(op.tests.empty()) << op.name;
    EXPECT_FALSE(op.benchmarks.empty()) << op.name;
  }
}

TEST_F(Cases, BenchmarkGivesARate) {
  const std::vector<BenchmarkRow> rows =
      run_benchmarks(*device_, {.filter = "swiglu", .seconds = 0});
  ASSERT_EQ(rows.size(), 4u);  // both activations, forward and backward
  EXPECT_EQ(rows[0].operation, "swiglu_forward");
  EXPECT_GT(rows[0].seconds, 0);
  EXPECT_GT(rows[0].rate, 0);
  EXPECT_EQ(rows[0].unit, "GB/s");
}

TEST_F(Cases, BenchmarksCanBeChosenByShape) {
  const auto rows = run_benchmarks(
      *device_, {.filter = "linear_forward", .shape = "BF16 bias", .warm_up = 0.01, .seconds = 0});
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].shape, "R=1024 I=512 O=1536 BF16 bias");
}

}  // namespace
}  // namespace longstride::ops
