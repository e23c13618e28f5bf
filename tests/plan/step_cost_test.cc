// Predicted times against measured ones, and what more memory, higher rates and retained
// activations do to a prediction.
#include "plan/step_cost.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "plan/cost_seconds.h"
#include "plan/machines.h"
#include "tests/plan/measured_steps.h"

namespace longstride {
namespace {

constexpr std::int64_t K = 1024, kGiB = std::int64_t{1} << 30;
// Sums of the same terms in another order.
constexpr double kRounding = 1 + 1e-12;

const MachineRates& h200() { return find_machine("h200"); }

TEST(StepCost, IsWithinATenthOfWhatWasMeasured) {
  double worst = 0, sum = 0;
  const std::vector<MeasuredStep> steps = measured_steps();
  for (const MeasuredStep& m : steps) {
    double seconds = m.step.predict(h200()).total();
    if (m.host_state > 0) seconds += predict_update({.state_host = m.host_state}, h200());
    const double ratio = seconds / m.seconds;
    EXPECT_NEAR(ratio, 1, 0.1) << m.what << ": " << m.seconds << " s (" << m.source
                               << "), predicted " << seconds;
    worst = std::max(worst, std::abs(ratio - 1));
    sum += ratio;
  }
  // The rates favour neither side.
  EXPECT_NEAR(sum / static_cast<double>(steps.size()), 1, 0.02);
  RecordProperty("worst", fmt::format("{:.3f}", worst));
}

// docs/tiers.md: 85.1 GiB of moments and masters in host memory take 1.85 s.
TEST(StepCost, AnUpdateTakesAsLongAsItsCopies) {
  const double state = 85.1 * static_cast<double>(kGiB);
  EXPECT_NEAR(predict_update({.weights = 15.2e9, .gradients = 30.5e9, .state_host = state}, h200()),
              1.85, 0.1);
  EXPECT_LT(predict_update({.weights = 15.2e9, .gradients = 30.5e9, .state_device = state}, h200()),
            0.1);
  EXPECT_GT(predict_update({.state_host = state, .state_disk = 10e9}, h200()),
            predict_update({.state_host = state + 10e9}, h200()));
}

// The three kinds of attention, with disk and without.
std::vector<GpuStep> kinds() {
  std::vector<GpuStep> steps = {{.tokens = 96 * K, .layers = 4},
                                {.tokens = 128 * K, .layers = 4, .window = 1024},
                                {.tokens = 192 * K, .layers = 4, .budget = 16},
                                {.tokens = 100'000, .layers = 4, .exact = true}};
  steps[2].selection.union_pages = 64;
  const std::size_t plain = steps.size();
  for (std::size_t i = 0; i < plain; ++i) {
    if (steps[i].budget != SparseLayers::kNone) continue;  // gradients need host memory
    steps.push_back(steps[i]);
    steps.back().host_memory = kGiB / 4;
  }
  return steps;
}

std::int64_t page_bytes(const StepPlan& plan) {
  std::int64_t bytes = 0;
  for (const auto* pools : {&plan.pages.kv, &plan.pages.gradients})
    for (const PoolCapacity& pool : *pools) bytes += pool.pages * pool.page_bytes;
  return bytes;
}

TEST(StepCost, MoreMemoryForPagesIsNeverSlower) {
  for (GpuStep step : kinds()) {
    const std::int64_t all = page_bytes(step.plan());
    const SequenceLayout layout = step.plan().layout();
    const std::int64_t least =
        least_device_bytes(layout, make_step_schedule(layout, step.plan().schedule),
                           kv_shape(step.config(), step.numerics()));
    double before = std::numeric_limits<double>::infinity();
    StepCost cost;
    for (int share = 0; share <= 64; ++share) {
      step.page_memory = least + (all - least) * share / 64;
      cost = step.predict(h200());
      EXPECT_LE(cost.total(), before * kRounding)
          << step.tokens << " tokens, window " << step.window << ", budget " << step.budget
          << ", host " << step.host_memory << ", " << share << "/64 of the pages";
      if (share == 0) {
        EXPECT_GT(cost.bytes_in, 0);
        EXPECT_GT(cost.exposed_transfers(), 0);
        EXPECT_EQ(cost.disk_in > 0, step.host_memory != PageBudget::kAll);
      }
      before = cost.total();
    }
    EXPECT_EQ(cost.bytes_in, 0);
    EXPECT_EQ(cost.exposed_transfers(), 0);
  }
}

TEST(StepCost, MoreHostMemoryIsNeverSlower) {
  GpuStep step{.tokens = 96 * K, .layers = 4, .page_memory = GpuStep::kStreaming};
  double before = std::numeric_limits<double>::infinity(), first = 0;
  for (const double share : {0.05, 0.1, 0.3, 0.5, 0.9, 1.5, 3.0}) {
    step.host_memory = static_cast<std::int64_t>(share * static_cast<double>(kGiB));
    const double seconds = step.predict(h200()).total();
    EXPECT_LE(seconds, before * kRounding) << share << " GiB";
    if (first == 0) first = seconds;
    before = seconds;
  }
  EXPECT_LT(before, first);
}

TEST(StepCost, AHigherRateIsNeverSlower) {
  const auto rates = [](MachineRates& m) {
    AttentionRates& a = m.attention;
    return std::vector<double*>{&m.products.peak,     &m.loss_head,        &a.earlier_forward,
                                &a.earlier_backward,  &a.own_forward,      &a.own_backward,
                                &a.window_forward,    &a.window_backward,  &a.selected_forward,
                                &a.selected_backward, &m.page_scores,      &m.memory,
                                &m.gradient_sums,     &m.copies.to_host,   &m.copies.from_host,
                                &m.copies.both,       &m.copies.disk_read, &m.copies.disk_write};
  };
  std::vector<GpuStep> steps = kinds();
  for (GpuStep& step : steps) step.page_memory = GpuStep::kStreaming;
  MachineRates changed = h200();
  std::vector<bool> matters(rates(changed).size());
  for (const GpuStep& step : steps) {
    const double before = step.predict(h200()).total();
    for (std::size_t i = 0; i < matters.size(); ++i) {
      changed = h200();
      *rates(changed)[i] *= 1.7;
      const double after = step.predict(changed).total();
      EXPECT_LE(after, before * kRounding) << "rate " << i << ", " << step.tokens << " tokens";
      if (after < before) matters[i] = true;
    }
  }
  for (std::size_t i = 0; i < matters.size(); ++i)
    EXPECT_TRUE(matters[i]) << "rate " << i << " makes no difference";
}

TEST(StepCost, ARetainedActivationIsNeverSlower) {
  for (GpuStep step : kinds()) {
    const std::int64_t layers = step.config().layers;
    double before = step.predict(h200()).total();
    step.across_episodes.resize(static_cast<std::size_t>(8 * layers));
    for (const Retained tensor : {Retained::kAttention, Retained::kMid, Retained::kInput,
                                  Retained::kGate, Retained::kQ, Retained::kUp}) {
      // Not of the last layer: without them its first forward pass stops early.
      for (std::int64_t i = 0; i < 8 * layers; ++i) {
        Retention& retained = step.across_episodes[static_cast<std::size_t>(i)];
        if (i % layers < layers - 1) retained = retained | Retention{tensor};
      }
      const double after = step.predict(h200()).total();
      EXPECT_LE(after, before * kRounding)
          << step.tokens << " tokens, " << static_cast<int>(tensor);
      before = after;
    }
    GpuStep without = step;
    without.across_episodes.clear();
    EXPECT_LT(before, without.predict(h200()).total());
  }
}

TEST(StepCost, KeptChunksAreNotRecomputed) {
  GpuStep step{.tokens = 32 * K};
  const StepCost one = step.predict(h200());
  step.keep_chunks = 4;
  const StepCost four = step.predict(h200());
  EXPECT_LT(four.recompute.total(), one.recompute.total());
  EXPECT_NEAR(four.backward.total(), one.backward.total(), 1e-9);
  step.keep_chunks = 8;
  EXPECT_EQ(step.predict(h200()).recompute.total(), 0);
}

// The arithmetic of all tasks, added up by hand for a step of one chunk.
TEST(StepCost, TasksAddUp) {
  const GpuStep step{.tokens = 4096, .chunk = 4096};
  const StepCost cost = step.predict(h200());
  double sum = 0;
  for (const double seconds : task_seconds(step.config(), step.numerics(), step.plan(), h200()))
    sum += seconds;
  EXPECT_NEAR(sum, cost.total(), 1e-9);
  EXPECT_EQ(cost.recompute.total(), 0);
  // 6 FLOPs for each of 7.07e9 weights in products, and 12 for each pair and element of a head.
  const double pairs = 4096.0 * 4097 / 2, model = 6 * 7.0706e9 * 4096 + 12 * 3584.0 * 28 * pairs;
  EXPECT_NEAR(cost.model_flops / model, 1, 1e-3);
  EXPECT_NEAR(cost.utilization, model / cost.total() / 989e12, 1e-3);
  EXPECT_NEAR(cost.tokens_per_s, 4096 / cost.total(), 1e-6);
}

// With copies of pages and of activations beside the arithmetic.
TEST(StepCost, TasksOfAStageAddUp) {
  GpuStep step{.tokens = 65536, .chunk = 4096, .page_memory = GpuStep::kStreaming};
  for (const std::int64_t budget : {SparseLayers::kNone, std::int64_t{32}}) {
    step.budget = budget;
    const StepCost cost = step.predict(h200());
    EXPECT_GT(cost.exposed_transfers(), 0);
    double sum = 0, forward = 0;
    for (const PipelineTask& task :
         predict_stage(step.config(), step.numerics(), step.plan(), h200())) {
      sum += task.seconds;
      if (task.phase == PipelinePhase::kForward) forward += task.seconds;
    }
    EXPECT_NEAR(sum, cost.total(), 1e-9 * sum);
    EXPECT_NEAR(forward, cost.forward.total(), 1e-9 * sum);
  }
}

// 28 layers of 233 million weights, forward and backward: half a byte is read, two are written.
TEST(StepCost, QuantizedWeightsAreWidenedForEveryProduct) {
  const GpuStep step{.tokens = 4096, .chunk = 4096};
  NumericsRecord numerics = step.numerics();
  const auto seconds = [&] {
    double sum = 0;
    for (const double s : task_seconds(step.config(), numerics, step.plan(), h200())) sum += s;
    return sum;
  };
  const double plain = seconds();
  for (const auto& [word, bytes] : {std::pair("nf4", 2.516), {"int8", 3.0}}) {
    numerics.quantize = word;
    EXPECT_NEAR((seconds() - plain) * h200().memory / (2 * 28 * 233.05e6 * bytes), 1, 0.01) << word;
  }
}

TEST(StepCost, RatesForAnotherTypeAreRefused) {
  const GpuStep step{.tokens = 8 * K};
  NumericsRecord numerics = step.numerics();
  numerics.compute = DType::kF32;
  EXPECT_THROW(predict_step(step.config(), numerics, step.plan(), h200()), Error);
}

// Activations that leave the device save their recomputation and cost copies.
TEST(StepCost, OffloadedActivationsAreCopied) {
  GpuStep step{.tokens = 64 * K, .layers = 4};
  StepPlan plan = step.plan();
  const StepCost plain = predict_step(step.config(), step.numerics(), plan, h200());
  EXPECT_EQ(plain.bytes_out, 0);
  plan.schedule.offloaded.assign(16 * 4, Retention{Retained::kAttention});
  const StepCost saved = predict_step(step.config(), step.numerics(), plan, h200());
  // 15 chunks, 4 layers, 3584 elements in bf16 and 28 log-sum-exps in F32 a token.
  EXPECT_EQ(saved.bytes_out, 15.0 * 4 * 4096 * (3584 * 2 + 28 * 4));
  EXPECT_EQ(saved.bytes_in, saved.bytes_out);
  EXPECT_LT(saved.recompute.attention, 0.01 * plain.recompute.attention);
  EXPECT_LT(saved.total(), plain.total());
  MachineRates slow = h200();
  slow.copies.from_host = slow.copies.to_host = slow.copies.both = 1e9;
  EXPECT_GT(predict_step(step.config(), step.numerics(), plan, slow).exposed_transfers(),
            10 * saved.exposed_transfers());
}

}  // namespace
}  // namespace longstride
