// The whole step on the GPU: against the CPU in F32 (invariant 1), and in BF16 the same bits for
// every plan and every run (invariants 2 and 4).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "ops/elementwise.h"
#include "tests/data/temp_directory.h"
#include "tests/train/sparse_case.h"

namespace longstride {
namespace {

Device& gpu() {
  static const std::unique_ptr<Device> device = make_cuda_device();
  return *device;
}

std::vector<std::byte> on_host(const ParameterSet& set) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(set.bytes()));
  set.device().copy_to_host(bytes.data(), set.data(), set.bytes());
  return bytes;
}

// The same values on another device, in another type.
std::unique_ptr<ParameterSet> copy_to(Device& device, const ModelConfig& config,
                                      const ParameterSet& from, DType dtype) {
  ParameterSet same(device, config, DType::kF32, "weights");
  const std::vector<std::byte> bytes = on_host(from);
  device.copy_from_host(same.data(), bytes.data(), same.bytes());
  auto to = std::make_unique<ParameterSet>(device, config, dtype, "weights");
  for (std::int64_t i = 0; i < to->size(); ++i)
    ops::convert(device.stream(), {same.view(i), to->view(i)});
  device.stream().synchronize();
  return to;
}

struct Plan {
  std::int64_t chunk, page, keep;
  bool rebuild = false;
  std::vector<Retention> across_episodes = {};
};

NumericsRecord numerics_of(const RandomCase& c, const Plan& plan, const NumericsChoice& choice) {
  return choose_numerics(gpu(), c.config, plan.chunk, plan.page, choice);
}

std::vector<std::byte> gradients_by(const NumericsRecord& numerics, const RandomCase& c,
                                    const ParameterSet& weights, Plan plan,
                                    double* loss = nullptr) {
  ParameterSet gradients(gpu(), c.config, DType::kF32, "gradients");
  StepRunner runner = planned_runner(c.config, weights, gradients, numerics,
                                     {static_cast<std::int64_t>(c.tokens.size()), plan.keep,
                                      within_episode(plan.rebuild), plan.across_episodes});
  const auto counted = static_cast<double>(
      std::count_if(c.targets.begin(), c.targets.end(), [](std::int32_t t) { return t >= 0; }));
  const SequenceResult result =
      runner.run({c.tokens, c.targets, c.document_starts, 0}, 1.0 / counted);
  if (loss != nullptr) *loss = result.loss_sum / counted;
  return on_host(gradients);
}

std::vector<std::byte> gradients_on_gpu(const RandomCase& c, const ParameterSet& weights, Plan plan,
                                        const NumericsChoice& choice, double* loss = nullptr) {
  return gradients_by(numerics_of(c, plan, choice), c, weights, plan, loss);
}

class StepOnCuda : public testing::TestWithParam<std::uint64_t> {};

void expect_what_the_cpu_computes(const RandomCase& c, NumericsChoice choice, std::uint64_t seed,
                                  double tolerance = 1e-5) {
  choice.compute = "f32";
  const std::unique_ptr<Device> cpu = make_cpu_device();
  const auto weights = choice.sparse.any() ? gentle_weights(*cpu, c.config, seed)
                                           : random_weights(*cpu, c.config, seed);
  const StepOutcome expected =
      run_step(*cpu, c, *weights, c.chunk, c.page, c.keep_chunks, 0, false, choice);
  const auto on_gpu = copy_to(gpu(), c.config, *weights, DType::kF32);
  double loss = 0;
  const std::vector<std::byte> bytes =
      gradients_on_gpu(c, *on_gpu, {c.chunk, c.page, c.keep_chunks}, choice, &loss);
  EXPECT_NEAR(loss, expected.loss(), 0.2 * tolerance * std::fabs(expected.loss()));
  double largest = 0;  // a tensor whose gradient all but vanishes is compared with the others
  for (std::int64_t i = 0; i < expected.gradients->size(); ++i) {
    const View view = expected.gradients->view(i);
    for (std::int64_t e = 0; e < view.elements(); ++e)
      largest = std::max(largest, static_cast<double>(std::fabs(view.as<float>()[e])));
  }
  for (std::int64_t i = 0; i < expected.gradients->size(); ++i) {
    const View view = expected.gradients->view(i);
    const auto* got = reinterpret_cast<const float*>(
        bytes.data() + (static_cast<std::byte*>(view.data()) - expected.gradients->data()));
    double difference = 0, norm = 0;
    for (std::int64_t e = 0; e < view.elements(); ++e) {
      const double want = static_cast<double>(view.as<float>()[e]), d = got[e] - want;
      difference += d * d;
      norm += want * want;
    }
    EXPECT_LE(std::sqrt(difference), tolerance * (std::sqrt(norm) + 0.1 * largest))
        << expected.gradients->specs()[static_cast<std::size_t>(i)].name;
  }
}

TEST_P(StepOnCuda, F32IsWhatTheCpuComputes) {
  expect_what_the_cpu_computes(random_case(GetParam()), {}, GetParam());
}

// Its lists too: others would change the loss.
TEST_P(StepOnCuda, SparseF32IsWhatTheCpuComputes) {
  const SparseCase c = sparse_case(GetParam());
  expect_what_the_cpu_computes(c, {.sparse = c.sparse}, GetParam());
}

// A key that is rounded the other way, because sums differ in their last bits, moves its code by
// one: 2e-3 is far below the error of the codes themselves.
TEST_P(StepOnCuda, PagesIn8BitsAreWhatTheCpuComputes) {
  const std::uint64_t seed = GetParam();
  const char* kv = seed % 3 == 0 ? "auto" : seed % 2 == 0 ? "int8" : "fp8";
  const char* gradients = seed % 4 == 0 ? "f32" : seed % 4 == 1 ? "fp8" : "int8";
  expect_what_the_cpu_computes(
      random_case(seed), {.kv_gradient_dtype = gradients, .layer_kv_dtypes = {kv}}, seed, 2e-3);
}

INSTANTIATE_TEST_SUITE_P(Random, StepOnCuda, testing::Range<std::uint64_t>(1, 25));

// Small enough for kernels that are interpreted (tests/cuda_twin), and large enough for those that
// cuDNN chooses for real work.
struct StepSize {
  std::int64_t tokens, chunk, page;
};
constexpr StepSize kSmall{300, 128, 64}, kLarge{1500, 512, 128};

// Several chunks; one document or more, a window in one of two layers.

RandomCase dense_case(const StepSize& size, std::int64_t window, std::uint64_t documents) {
  RandomCase c;
  ModelConfig& m = c.config;
  m.layers = 2;
  m.kv_heads = 2;
  m.query_heads = 4;
  m.head_size = 64;
  m.hidden_size = 128;
  m.ffn_size = 256;
  m.vocabulary = 512;
  m.rms_eps = 1e-6;
  m.qkv_bias = true;
  m.rope.theta = 10000;
  m.max_positions = 1 << 20;
  m.windows = {0, window};
  Random random(5, 6);
  fill_sequence(c, random, size.tokens, documents, 0);
  return c;
}

// Weights small enough that errors do not grow from layer to layer.
std::unique_ptr<ParameterSet> tame_weights(const ModelConfig& config) {
  const std::unique_ptr<Device> cpu = make_cpu_device();
  const auto weights = random_weights(*cpu, config, 3);
  for (std::int64_t i = 0; i < weights->size(); ++i) {
    const View view = weights->view(i);
    if (view.shape().rank() == 2)
      for (std::int64_t e = 0; e < view.elements(); ++e) view.as<float>()[e] *= 0.2f;
  }
  return copy_to(gpu(), config, *weights, DType::kBF16);
}

// Which gradients differ, and by how much; empty where none does.
std::string differences(const RandomCase& c, const std::vector<std::byte>& a,
                        const std::vector<std::byte>& b) {
  const ParameterSet names(shapes_device(DeviceKind::kCuda), c.config, DType::kF32, "gradients");
  std::string text;
  std::size_t at = 0;
  for (const ParameterSpec& spec : names.specs()) {
    const auto* x = reinterpret_cast<const float*>(a.data() + at);
    const auto* y = reinterpret_cast<const float*>(b.data() + at);
    const std::int64_t n = spec.shape.elements();
    if (!std::equal(x, x + n, y))
      text += fmt::format("{} by {:.1e}; ", spec.name, relative_error(x, y, n));
    at += static_cast<std::size_t>((n * 4 + 255) / 256 * 256);
  }
  return text;
}

void expect_same_in_every_plan(const StepSize& size) {
  for (const auto& [window, documents] :
       {std::pair<std::int64_t, std::uint64_t>{0, 1}, {200, 1}, {0, 4}}) {
    const RandomCase c = dense_case(size, window, documents);
    const auto weights = tame_weights(c.config);
    for (const auto& [compute, pages] :
         {std::pair{"bf16", "f32"}, {"bf16", "bf16"}, {"f32", "f32"}, {"f32", "bf16"}}) {
      const NumericsChoice choice{.compute = compute, .kv_gradient_dtype = pages};
      const std::int64_t chunk = size.chunk, page = size.page;
      const auto first = gradients_on_gpu(c, *weights, {chunk, page, 1}, choice);
      for (const Plan& plan : {Plan{chunk, page, 1}, Plan{chunk, page, 2}, Plan{chunk, page, 3},
                               Plan{chunk, page, 1, true}, Plan{chunk, page, 2, true}})
        EXPECT_EQ(differences(c, first, gradients_on_gpu(c, *weights, plan, choice)), "")
            << compute << ", gradient pages " << pages << ", window " << window << ", " << documents
            << " documents: kept " << plan.keep << (plan.rebuild ? ", rebuilt" : "");
    }
  }
}

TEST(StepOnCudaBits, EveryPlanAndEveryRunGivesTheSame) { expect_same_in_every_plan(kSmall); }
TEST(StepOnCudaBits, LargeStepsGiveTheSameInEveryPlan) { expect_same_in_every_plan(kLarge); }

// Selected pages: lists of equal length (cuDNN), and documents (our kernels).
void expect_sparse_steps_are_the_same(const StepSize& size) {
  for (const std::uint64_t documents : {1, 4}) {
    const RandomCase c = dense_case(size, 0, documents);
    const auto weights = tame_weights(c.config);
    for (const auto& [compute, pages] :
         {std::pair{"bf16", "f32"}, {"bf16", "bf16"}, {"f32", "bf16"}})
      for (const std::int64_t budget : {3, 4}) {
        NumericsChoice choice{.compute = compute, .kv_gradient_dtype = pages};
        choice.sparse.budgets = {budget, budget == 3 ? SparseLayers::kNone : 6};
        choice.sparse.selection = {.sinks = 1,
                                   .recent = 1,
                                   .union_pages = 6,
                                   .summary_tokens = 32,
                                   .summary = Summary::kOutliers};
        const std::int64_t chunk = size.chunk / 2, page = size.page;
        const auto first = gradients_on_gpu(c, *weights, {chunk, page, 1}, choice);
        for (const Plan& plan : {Plan{chunk, page, 1}, Plan{chunk, page, 2}, Plan{chunk, page, 3},
                                 Plan{chunk, page, 5}, Plan{chunk, page, 1, true}})
          EXPECT_EQ(differences(c, first, gradients_on_gpu(c, *weights, plan, choice)), "")
              << compute << ", gradient pages " << pages << ", budget " << budget << ", "
              << documents << " documents: kept " << plan.keep;
      }
  }
}

TEST(StepOnCudaBits, SparseStepsGiveTheSameInEveryPlan) {
  expect_sparse_steps_are_the_same(kSmall);
}
TEST(StepOnCudaBits, LargeSparseStepsGiveTheSame) { expect_sparse_steps_are_the_same(kLarge); }

TEST(StepOnCudaBits, EverySetOfRetainedActivationsGivesTheSame) {
  const RandomCase c = dense_case(kSmall, 0, 1);
  const auto weights = tame_weights(c.config);
  const std::int64_t chunk = kSmall.chunk, page = kSmall.page;
  const auto first = gradients_on_gpu(c, *weights, {chunk, page, 1}, {});
  const auto chunks = static_cast<std::size_t>((std::ssize(c.tokens) + chunk - 1) / chunk);
  for (unsigned bits = 1; bits < 64; ++bits) {
    const std::vector<Retention> everywhere(chunks * static_cast<std::size_t>(c.config.layers),
                                            Retention::of_bits(bits));
    EXPECT_EQ(differences(c, first,
                          gradients_on_gpu(c, *weights, {chunk, page, 1, false, everywhere}, {})),
              "")
        << bits;
  }
}

// Measured kernels are part of the record: whoever replays it gets the same bits, in every plan,
// and the next run on this machine finds the same choices.
TEST(StepOnCudaBits, MeasuredKernelsAreRememberedAndReplayed) {
  const TempDirectory cache;
  ::setenv("LONGSTRIDE_CACHE", cache.path().c_str(), 1);
  const RandomCase c = dense_case(kLarge, 0, 1);
  const auto weights = tame_weights(c.config);
  const Plan plan{512, 128, 1};
  NumericsRecord numerics = numerics_of(c, plan, {});
  const auto measure = [&](std::vector<std::byte>* bytes) {
    ParameterSet gradients(gpu(), c.config, DType::kF32, "gradients");
    StepRunner runner = planned_runner(
        c.config, *weights, gradients, numerics,
        {static_cast<std::int64_t>(c.tokens.size()), plan.keep, within_episode(plan.rebuild)});
    const ops::KernelChoices choices = runner.choose_kernels();
    EXPECT_TRUE(
        std::ranges::all_of(on_host(gradients), [](std::byte b) { return b == std::byte{}; }));
    if (bytes != nullptr) {
      const auto counted = static_cast<double>(
          std::ranges::count_if(c.targets, [](std::int32_t t) { return t >= 0; }));
      runner.run({c.tokens, c.targets, c.document_starts, 0}, 1.0 / counted);
      *bytes = on_host(gradients);
    }
    return choices;
  };
  std::vector<std::byte> first;
  const ops::KernelChoices choices = measure(&first);
  EXPECT_GE(choices.size(), 10u);
  EXPECT_EQ(measure(nullptr), choices);
  numerics.choices = choices;
  for (const Plan& replayed : {plan, Plan{512, 128, 2}, Plan{512, 128, 3, true}})
    EXPECT_EQ(differences(c, first, gradients_by(numerics, c, *weights, replayed)), "")
        << "kept " << replayed.keep;
  numerics.choices.begin()->second = "no number";
  EXPECT_THROW(gradients_by(numerics, c, *weights, plan), Error);
  ::unsetenv("LONGSTRIDE_CACHE");
}

TEST(StepOnCudaBits, ChoosingKernelsStopsWhenAsked) {
  const TempDirectory cache;
  ::setenv("LONGSTRIDE_CACHE", cache.path().c_str(), 1);
  const RandomCase c = dense_case(kLarge, 0, 1);
  const auto weights = tame_weights(c.config);
  ParameterSet gradients(gpu(), c.config, DType::kF32, "gradients");
  StepRunner runner =
      planned_runner(c.config, *weights, gradients, numerics_of(c, {512, 128, 1}, {}),
                     {static_cast<std::int64_t>(c.tokens.size()), 1});
  int asked = 0;
  EXPECT_THROW(runner.choose_kernels([&] { return ++asked == 2; }), Interrupted);
  EXPECT_EQ(asked, 2);
  EXPECT_TRUE(std::filesystem::is_empty(cache.path()));
  EXPECT_GE(runner.choose_kernels().size(), 10u);
  ::unsetenv("LONGSTRIDE_CACHE");
}

// BF16 follows F32 within what BF16 can hold, whatever the chunk.
void expect_bf16_close_to_f32(const StepSize& size) {
  for (const auto& [window, documents] :
       {std::pair<std::int64_t, std::uint64_t>{0, 1}, {200, 1}, {0, 4}}) {
    const RandomCase c = dense_case(size, window, documents);
    const auto weights = tame_weights(c.config);
    const auto exact =
        gradients_on_gpu(c, *weights, {size.chunk, size.page, 1}, {.compute = "f32"});
    for (const Plan& plan : {Plan{size.chunk, size.page, 1}, Plan{128, 128, 1}, Plan{2048, 64, 1}})
      for (const char* pages : {"f32", "bf16"}) {
        const auto close =
            gradients_on_gpu(c, *weights, plan, {.compute = "bf16", .kv_gradient_dtype = pages});
        const auto* a = reinterpret_cast<const float*>(close.data());
        const auto* b = reinterpret_cast<const float*>(exact.data());
        EXPECT_LT(relative_error(a, b, static_cast<std::int64_t>(exact.size() / 4)), 0.03)
            << "chunk " << plan.chunk << ", gradient pages " << pages;
      }
  }
}

TEST(StepOnCudaBits, Bf16IsCloseToF32) { expect_bf16_close_to_f32(kSmall); }
TEST(StepOnCudaBits, LargeStepsInBf16AreCloseToF32) { expect_bf16_close_to_f32(kLarge); }

}  // namespace
}  // namespace longstride
