// A tied embedding whose gradient as head is summed apart has, to the bit, the gradients of a model
// that has the same weight twice, added once.
#include "model/tied_head.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "tests/train/step_fixture.h"

namespace longstride {
namespace {

constexpr std::int64_t kChunk = 32, kPage = 16;

RandomCase tied_case(std::uint64_t seed) {
  RandomCase c = random_case(seed);
  c.config.tied_embeddings = true;
  return c;
}

std::vector<ParameterSpec> specs_of(const RandomCase& c, bool apart) {
  std::vector<ParameterSpec> specs = parameter_specs(c.config);
  if (apart) sum_head_apart(specs);
  return specs;
}

// Two sequences: all tokens, and those without the first few.
std::unique_ptr<ParameterSet> gradients_of(Device& device, const RandomCase& c,
                                           const ParameterSet& weights,
                                           const std::vector<ParameterSpec>& specs) {
  auto gradients = std::make_unique<ParameterSet>(ParameterSet::gradients(device, specs));
  NumericsChoice choice;
  choice.tied_apart = sums_head_apart(specs);
  const NumericsRecord numerics = choose_numerics(device, c.config, kChunk, kPage, choice);
  const StepOptions options{.max_tokens = std::ssize(c.tokens), .packed = true};
  StepRunner runner(c.config, weights, *gradients, numerics,
                    plan_step(device, c.config, specs, numerics, options));
  const std::span<const std::int32_t> tokens = c.tokens, targets = c.targets;
  runner.run({tokens, targets, c.document_starts}, 0.25);
  const std::vector<std::int64_t> one = {0};
  runner.run({tokens.subspan(1), targets.subspan(1), one}, 0.5);
  return gradients;
}

void copy_values(const ParameterSet& from, const ParameterSet& to) {
  for (std::int64_t i = 0; i < from.size(); ++i)
    std::copy_n(from.view(i).as<float>(), from.view(i).elements(), to.view(i).as<float>());
}

const float* begin_of(const View& view) { return view.as<float>(); }
const float* end_of(const View& view) { return view.as<float>() + view.elements(); }

TEST(TiedHead, SummedApartIsTheSumOfTwoWeights) {
  int differ = 0;
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    const auto device = make_cpu_device();
    const RandomCase c = tied_case(seed);
    const auto weights = random_weights(*device, c.config, seed);
    const auto apart = gradients_of(*device, c, *weights, specs_of(c, true));
    ASSERT_TRUE(apart->head_gradient().present());
    add_head_gradient(*apart);

    RandomCase twice = c;
    twice.config.tied_embeddings = false;
    const auto two = random_weights(*device, twice.config, seed);
    copy_values(*weights, *two);
    const std::int64_t head = two->size() - 1;
    std::copy(begin_of(weights->view(0)), end_of(weights->view(0)), two->view(head).as<float>());
    const auto expected = gradients_of(*device, twice, *two, specs_of(twice, true));
    EXPECT_FALSE(expected->head_gradient().present());
    const View sum = expected->view(0);
    for (std::int64_t e = 0; e < sum.elements(); ++e)
      sum.as<float>()[e] += expected->view(head).as<float>()[e];
    for (std::int64_t i = 0; i < apart->size(); ++i)
      EXPECT_TRUE(
          std::equal(begin_of(apart->view(i)), end_of(apart->view(i)), begin_of(expected->view(i))))
          << seed << " " << apart->specs()[static_cast<std::size_t>(i)].name;
    EXPECT_TRUE(std::all_of(begin_of(apart->head_gradient()), end_of(apart->head_gradient()),
                            [](float g) { return g == 0; }));

    // Together: another order of the same additions.
    const auto together = gradients_of(*device, c, *weights, specs_of(c, false));
    EXPECT_FALSE(together->head_gradient().present());
    EXPECT_LT(relative_error(begin_of(together->view(0)), begin_of(sum), sum.elements()), 1e-5);
    differ += !std::equal(begin_of(sum), end_of(sum), begin_of(together->view(0)));
  }
  EXPECT_GT(differ, 0);
}

TEST(TiedHead, TakesTheBytesThatArePlanned) {
  const auto device = make_cpu_device();
  const RandomCase c = tied_case(3);
  const std::vector<ParameterSpec> apart = specs_of(c, true), together = specs_of(c, false);
  const std::int64_t before = device->allocated_bytes(),
                     head = bytes_of(DType::kF32, apart[0].shape);
  const ParameterSet gradients = ParameterSet::gradients(*device, apart);
  EXPECT_EQ(device->allocated_bytes() - before, ParameterSet::gradient_bytes_needed(apart));
  EXPECT_EQ(ParameterSet::gradient_bytes_needed(apart),
            ParameterSet::gradient_bytes_needed(together) + (head + 255) / 256 * 256);
  // Neither weights nor the optimizer's state have it.
  EXPECT_EQ(ParameterSet::bytes_needed(apart), ParameterSet::bytes_needed(together));
  EXPECT_EQ(ParameterSet::bytes_needed(apart, Holds::kTrainable),
            ParameterSet::bytes_needed(together, Holds::kTrainable));
  EXPECT_EQ(gradients.size(), std::ssize(together));
}

TEST(TiedHead, FrozenOrUntiedIsNotMarked) {
  RandomCase c = tied_case(1);
  std::vector<ParameterSpec> specs = parameter_specs(c.config);
  specs[0].trainable = false;
  sum_head_apart(specs);
  EXPECT_FALSE(sums_head_apart(specs));
  c.config.tied_embeddings = false;
  EXPECT_FALSE(sums_head_apart(specs_of(c, true)));
}

TEST(TiedHead, GradientsThatContradictTheRecordAreRefused) {
  const auto device = make_cpu_device();
  const RandomCase c = tied_case(2);
  const auto weights = random_weights(*device, c.config, 2);
  for (const bool apart : {true, false}) {
    const std::vector<ParameterSpec> specs = specs_of(c, apart);
    const ParameterSet gradients = ParameterSet::gradients(*device, specs);
    NumericsChoice choice;
    choice.tied_apart = !apart;
    const NumericsRecord numerics = choose_numerics(*device, c.config, kChunk, kPage, choice);
    EXPECT_THROW(StepRunner(c.config, *weights, gradients, numerics,
                            plan_step(*device, c.config, specs, numerics, {.max_tokens = 64})),
                 InternalError);
  }
}

}  // namespace
}  // namespace longstride
