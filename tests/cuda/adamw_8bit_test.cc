// AdamW with moments in 8 bits on a GPU has the codes and magnitudes of the CPU, to the bit.
#include <algorithm>
#include <cmath>

#include "ops/cases/registry.h"
#include "ops/cases/run.h"
#include "tests/cuda/gpu_fixture.h"

namespace longstride::ops {
namespace {

TEST(AdamW8BitOnGpu, HasTheCodesOfTheCpu) {
  const auto cpu = make_cpu_device(), gpu = make_cuda_device();
  int compared = 0;
  for (const OpCase& op : optimizer_cases())
    for (const Variant& variant : op.tests) {
      if (variant.label.find("8 bits") == std::string::npos) continue;
      const Problem problem = variant.make();
      const Outcome a = run_problem(*cpu, problem), b = run_problem(*gpu, problem);
      for (std::size_t i = 0; i < a.size(); ++i) {
        const std::string& name = problem.arguments[i].name;
        if (name == "m" || name == "v" || name == "m_absmax" || name == "v_absmax") {
          EXPECT_TRUE(a[i].bytes == b[i].bytes) << variant.label << " " << name;
          ++compared;
        }
        if (name != "weight") continue;
        // Roots and quotients differ in their last bits, which rarely changes a rounding.
        std::int64_t differ = 0;
        for (std::int64_t e = 0; e < a[i].elements(); ++e) {
          const double x = a[i].get(e), y = b[i].get(e);
          differ += x == y ? 0 : 1;
          EXPECT_LE(std::fabs(x - y), 0x1p-7 * std::max(std::fabs(x), std::fabs(y)) + 1e-6);
        }
        EXPECT_LE(differ, a[i].elements() / 500) << variant.label;
      }
    }
  EXPECT_GT(compared, 0);
}

}  // namespace
}  // namespace longstride::ops
