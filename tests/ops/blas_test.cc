#include "ops/cpu/blas.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

#include "base/error.h"

namespace longstride::ops::cpu {
namespace {

TEST(Blas, MultipliesInAllFourForms) {
  // [2, 3] times [3, 2], given straight and transposed.
  const std::vector<float> a = {1, 2, 3, 4, 5, 6}, a_t = {1, 4, 2, 5, 3, 6};
  const std::vector<float> b = {7, 8, 9, 10, 11, 12}, b_t = {7, 9, 11, 8, 10, 12};
  const std::vector<float> want = {58 + 1, 64 + 1, 139 + 1, 154 + 1};
  for (Trans ta : {Trans::kNo, Trans::kYes}) {
    for (Trans tb : {Trans::kNo, Trans::kYes}) {
      std::vector<float> c(4, 2.0f);
      sgemm(ta, tb, 2, 2, 3, 1.0f, ta == Trans::kYes ? a_t.data() : a.data(),
            ta == Trans::kYes ? 2 : 3, tb == Trans::kYes ? b_t.data() : b.data(),
            tb == Trans::kYes ? 3 : 2, 0.5f, c.data(), 2);
      EXPECT_EQ(c, want);
    }
  }
}

TEST(Blas, RefusesDimensionsThatDoNotFitTheLibrary) {
  float x = 0;
  EXPECT_THROW(
      sgemm(Trans::kNo, Trans::kNo, 1, 1, std::int64_t{1} << 31, 1.0f, &x, 1, &x, 1, 0.0f, &x, 1),
      InternalError);
}

// A library older than the CPU would otherwise fall back to generic x86-64 kernels.
TEST(Blas, UsesTheVectorUnitsOfThisCpu) {
  const std::string description = blas_description();
  EXPECT_EQ(description.substr(0, 9), "OpenBLAS ");
  if (std::getenv("OPENBLAS_CORETYPE") != nullptr) GTEST_SKIP() << "the user has chosen the core";
  const std::string best = best_blas_core();
  if (best == "SkylakeX") {
    EXPECT_TRUE(description.ends_with(" SkylakeX") || description.ends_with(" Cooperlake") ||
                description.ends_with(" SapphireRapids"))
        << description;
  } else if (best == "Haswell") {
    EXPECT_FALSE(description.ends_with(" Prescott") || description.ends_with(" Generic"))
        << description;
  }
}

TEST(Blas, LeavesTheEnvironmentAsItWas) {
  const char* before = std::getenv("OPENBLAS_CORETYPE");
  const std::string was = before == nullptr ? "" : before;
  blas_description();
  const char* after = std::getenv("OPENBLAS_CORETYPE");
  EXPECT_EQ(was, after == nullptr ? "" : after);
}

}  // namespace
}  // namespace longstride::ops::cpu
