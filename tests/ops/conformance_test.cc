// Every case of src/ops/cases on the CPU: against its reference, against finite differences, and
// with other thread counts.
#include <gtest/gtest.h>

#include <cctype>
#include <ostream>

#include "base/thread_pool.h"
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

std::vector<Named> all_tests() {
  std::vector<Named> all;
  for (const OpCase& op : op_cases()) {
    for (const Variant& v : op.tests) all.push_back({op.name, v});
  }
  return all;
}

class Conformance : public testing::TestWithParam<Named> {
 protected:
  void TearDown() override { set_thread_count(threads_); }
  std::unique_ptr<Device> device_ = make_cpu_device();

 private:
  int threads_ = thread_count();
};

TEST_P(Conformance, MatchesReferenceWithAnyNumberOfThreads) {
  set_thread_count(1);
  const Problem problem = GetParam().variant.make();
  const Outcome outcome = run_problem(*device_, problem);
  for (const std::string& wrong : compare_with_reference(problem, outcome)) ADD_FAILURE() << wrong;
  for (const std::string& wrong : compare_with_differences(problem, outcome))
    ADD_FAILURE() << wrong;
  for (const std::string& wrong : compare_without_optional(*device_, problem, outcome))
    ADD_FAILURE() << wrong;

  // Scratch may depend on the number of threads, so the problem is made again.
  set_thread_count(3);
  const Problem again = GetParam().variant.make();
  const Outcome threaded = run_problem(*device_, again);
  ASSERT_EQ(threaded.size(), outcome.size());
  for (std::size_t i = 0; i < outcome.size(); ++i) {
    if (problem.arguments[i].role == Role::kScratch) continue;
    EXPECT_EQ(threaded[i].bytes, outcome[i].bytes)
        << problem.arguments[i].name << " changes with threads";
  }
}

std::string test_name(const testing::TestParamInfo<Named>& info) {
  std::string name = info.param.operation + "_" + info.param.variant.label;
  for (char& c : name) {
    if (c == '+') c = 'a';
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return name;
}

INSTANTIATE_TEST_SUITE_P(Ops, Conformance, testing::ValuesIn(all_tests()), test_name);

}  // namespace
}  // namespace longstride::ops
