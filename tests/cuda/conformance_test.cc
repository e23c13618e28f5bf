// Every case of src/ops/cases on the GPU, in F32 and in BF16: against its reference, against finite
// differences, and twice, for the same bits if it repeats them.
#include <gtest/gtest.h>

#include <cctype>
#include <ostream>

#include "ops/cases/registry.h"
#include "ops/cases/run.h"

namespace longstride::ops {
namespace {

struct Named {
  std::string operation;
  Variant variant;
  friend std::ostream& operator<<(std::ostream& out, const Named& n) {
    return out << n.operation << " " << n.variant.label;
  }
};

std::vector<Named> all_tests(bool in_bf16) {
  std::vector<Named> all;
  for (const OpCase& op : op_cases())
    for (const Variant& v : in_bf16 ? op.tests16 : op.tests) all.push_back({op.name, v});
  return all;
}

class OnCuda : public testing::TestWithParam<Named> {};

TEST_P(OnCuda, MatchesReferenceAndRepeats) {
  static const std::unique_ptr<Device> device = make_cuda_device();
  const Problem problem = GetParam().variant.make();
  const Outcome outcome = run_problem(*device, problem);
  for (const std::string& wrong : compare_with_reference(problem, outcome)) ADD_FAILURE() << wrong;
  for (const std::string& wrong : compare_with_differences(problem, outcome))
    ADD_FAILURE() << wrong;
  for (const std::string& wrong : compare_without_optional(*device, problem, outcome))
    ADD_FAILURE() << wrong;
  if (!problem.repeats) return;
  const Outcome again = run_problem(*device, problem);
  ASSERT_EQ(again.size(), outcome.size());
  for (std::size_t i = 0; i < outcome.size(); ++i)
    EXPECT_EQ(again[i].bytes, outcome[i].bytes) << problem.arguments[i].name << " does not repeat";
}

std::string test_name(const testing::TestParamInfo<Named>& info) {
  std::string name = info.param.operation + "_" + info.param.variant.label;
  for (char& c : name) {
    if (c == '+') c = 'a';
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return name;
}

INSTANTIATE_TEST_SUITE_P(F32, OnCuda, testing::ValuesIn(all_tests(false)), test_name);
INSTANTIATE_TEST_SUITE_P(BF16, OnCuda, testing::ValuesIn(all_tests(true)), test_name);

}  // namespace
}  // namespace longstride::ops
