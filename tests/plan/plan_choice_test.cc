#include "plan/plan_choice.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "device/device.h"
#include "model/presets.h"
#include "plan/machines.h"
#include "plan/step_cost.h"
#include "tests/data/temp_directory.h"

namespace longstride {
namespace {

constexpr std::int64_t kGiB = std::int64_t{1} << 30;

class ChoosePlan : public testing::Test {
 protected:
  // Shapes of a 0.5B model, of which only the layers count here.
  ChosenPlan choose(std::int64_t device, std::int64_t host, std::int64_t disk = 0,
                    std::int64_t activations = 0) {
    return choose_plan(
        planner_of(), config_, numerics(), options(),
        {{.device = device, .host = host, .disk = disk, .disk_directory = "/disk"}, activations},
        rates());
  }
  // Chunks are so short here that copies of pages would take longer than the arithmetic.
  static MachineRates rates() {
    MachineRates r = find_machine("h200");
    for (double* rate : {&r.copies.from_host, &r.copies.to_host, &r.copies.both}) *rate *= 10;
    return r;
  }
  PlannerOf planner_of() {
    return [this](const StepOptions& with) {
      return StepPlanner(*device_, config_, specs_, numerics(), with);
    };
  }
  StepPlan plain() { return planner_of()(options()).plan({}); }
  NumericsRecord numerics() const {
    NumericsRecord r;
    r.chunk_tokens = 1024;
    r.page_tokens = 128;
    if (sparse_) {
      r.sparse.budgets.assign(static_cast<std::size_t>(config_.layers), 8);
      r.sparse.selection.union_pages = 32;
    }
    return r;
  }
  static StepOptions options() { return {.max_tokens = 64 * 1024}; }

  std::unique_ptr<Device> device_ = make_cpu_device();
  ModelConfig config_ = find_preset("qwen2.5-0.5b");
  std::vector<ParameterSpec> specs_ = parameter_specs(config_, DType::kF32);
  bool sparse_ = false;  // all layers
};

TEST_F(ChoosePlan, StaysWithinTheDeviceAndSavesMoreWithMore) {
  const StepMemory least = plain().memory;
  double saved = -1;
  for (const std::int64_t more :
       {std::int64_t{0}, kGiB / 4, kGiB, 4 * kGiB, 16 * kGiB, 90 * kGiB}) {
    const ChosenPlan chosen = choose(least.total() + more, 0);
    EXPECT_LE(chosen.plan.memory.total(), least.total() + more);
    EXPECT_EQ(chosen.plan.memory.retained, chosen.retention.bytes);
    EXPECT_EQ(chosen.plan.memory.host_pages, 0);
    EXPECT_GE(chosen.retention.saved_seconds, saved);
    saved = chosen.retention.saved_seconds;
  }
  EXPECT_GT(saved, 0);
}

// Pages take less time to stream than attention to recompute, if the host has room for them.
TEST_F(ChoosePlan, PagesMakeRoomForActivations) {
  const StepMemory all = plain().memory;
  const ChosenPlan alone = choose(all.total(), 0), with_host = choose(all.total(), 100 * kGiB);
  EXPECT_EQ(alone.plan.memory.host_pages, 0);
  EXPECT_GT(with_host.retention.saved_seconds, alone.retention.saved_seconds);
  EXPECT_GT(with_host.plan.memory.host_pages, 0);
  EXPECT_LE(with_host.plan.memory.total(), all.total());
  // Where all fits, pages stay.
  const ChosenPlan large = choose(200 * kGiB, 100 * kGiB);
  EXPECT_EQ(large.plan.memory.host_pages, 0);
}

// What the device has no room for goes to host memory, as far as that goes and copies are hidden.
TEST_F(ChoosePlan, ActivationsGoToTheHost) {
  const StepMemory all = plain().memory;
  const std::int64_t device = all.total() + kGiB;
  const ChosenPlan without = choose(device, 0), with = choose(device, 8 * kGiB, 0, 3 * kGiB);
  EXPECT_EQ(without.retention.host_bytes, 0);
  EXPECT_EQ(without.plan.memory.host_activations, 0);
  EXPECT_GT(with.retention.host_bytes, 2 * kGiB);
  EXPECT_EQ(with.plan.memory.host_activations, with.retention.host_bytes);
  EXPECT_LE(with.plan.memory.host_activations, 3 * kGiB);
  EXPECT_LE(with.plan.memory.host(), 8 * kGiB);
  EXPECT_LE(with.plan.memory.total(), device);
  EXPECT_GT(with.retention.saved_seconds, without.retention.saved_seconds);
  // Nothing is both on the device and off it.
  for (std::size_t i = 0; i < with.retention.offloaded.size(); ++i)
    EXPECT_TRUE((with.retention.offloaded[i] & with.retention.across_episodes[i]).empty());
}

TEST_F(ChoosePlan, CopiesThatNothingHidesAreNotMade) {
  const SequenceLayout layout{64 * 1024, 1024, 128, {0}};
  const auto host_bytes = [&](double copies) {
    return choose_retention(config_, numerics(), layout, 1, {0, 1000 * kGiB}, {.copies = copies})
        .host_bytes;
  };
  EXPECT_EQ(host_bytes(1e3), 0);
  EXPECT_LT(host_bytes(20e9), host_bytes(200e9));
  EXPECT_GT(host_bytes(20e9), 0);
}

// Where not even the workspace fits, episodes retain less for their own backward pass.
TEST_F(ChoosePlan, EpisodesRetainLessWhereTheyMust) {
  const StepMemory all = plain().memory;
  const ChosenPlan tight = choose(all.workspace, 100 * kGiB);
  EXPECT_LE(tight.plan.memory.total(), all.workspace);
  EXPECT_NE(tight.plan.schedule.within_episode, Retention::all());
}

TEST_F(ChoosePlan, NoPageGoesToDiskForActivations) {
  const StepMemory all = plain().memory;
  const std::int64_t pages = all.kv_pages + all.kv_gradient_pages;
  const ChosenPlan chosen = choose(all.total(), pages / 2, 100 * kGiB);
  EXPECT_GT(chosen.retention.bytes, 0);
  EXPECT_GT(chosen.plan.memory.host_pages, 0);
  EXPECT_EQ(chosen.plan.memory.disk_pages, 0);
}

// Sparse layers keep no gradients on disk. Where host memory has no room for all of them, pages
// that only stream do not fit, and those that stay still do.
TEST_F(ChoosePlan, GradientsOfSparsePagesThatTheHostCannotHoldStay) {
  sparse_ = true;
  const StepMemory all = plain().memory;
  const std::int64_t device = all.total() - all.kv_gradient_pages / 4,
                     host = all.kv_gradient_pages / 2;
  const StepMemory chosen = choose(device, host, 100 * kGiB).plan.memory;
  EXPECT_LE(chosen.total(), device);
  EXPECT_GT(chosen.kv_gradient_pages, 0);
  EXPECT_LE(chosen.host_pages, host);
}

// Where pages do not fit, those that stay beyond streaming give way too.
TEST_F(ChoosePlan, ActivationsComeBeforePagesThatStreamAnyway) {
  const StepMemory all = plain().memory;
  const ChosenPlan chosen = choose(all.total() - all.kv_gradient_pages / 2, 100 * kGiB);
  EXPECT_GT(chosen.retention.bytes, 0);
  EXPECT_LE(chosen.plan.memory.total(), all.total() - all.kv_gradient_pages / 2);
}

// Half of the layers frozen: less to keep, less to compute, and no more memory than allowed.
TEST_F(ChoosePlan, FrozenLayersTakeLessTime) {
  const std::int64_t device = plain().memory.total() + kGiB;
  const auto seconds = [&](const ChosenPlan& chosen) {
    MachineRates r = rates();
    r.compute = DType::kF32;
    return predict_step(config_, numerics(), chosen.plan, r).total();
  };
  const ChosenPlan all = choose(device, 0);
  for (ParameterSpec& spec : specs_)
    spec.trainable = spec.place.layer < 0 ? spec.place.at_top == &ModelParameters::final_norm
                                          : spec.place.layer >= config_.layers / 2;
  const ChosenPlan upper = choose(device, 0);
  for (ParameterSpec& spec : specs_)
    spec.trainable = spec.place.at_top == &ModelParameters::final_norm;
  const ChosenPlan top = choose(device, 0);
  EXPECT_LE(upper.plan.memory.total(), device);
  EXPECT_LT(upper.plan.memory.kv_gradient_pages, all.plan.memory.kv_gradient_pages);
  EXPECT_LT(seconds(upper), 0.8 * seconds(all));
  EXPECT_LT(seconds(top), 0.7 * seconds(upper));
  EXPECT_EQ(top.plan.memory.kv_gradient_pages, 0);
}

TEST_F(ChoosePlan, TooLittleIsRefused) {
  EXPECT_TRUE(says(error_of([&] { choose(1 << 20, 100 * kGiB); }), {"largest working set"}));
  EXPECT_TRUE(
      says(error_of([&] { choose(plain().memory.total() / 2, 0); }), {"offloaded pages need"}));
}

TEST_F(ChoosePlan, BesidePagesAsTold) {
  const StepPlanner planner = planner_of()(options());
  const PageBudget streaming{.device = planner.streaming_page_bytes()};
  const StepPlan alone = planner.plan(streaming);
  const ChosenPlan chosen = retain_beside(streaming, planner_of(), config_, numerics(), options(),
                                          alone.memory.total() + kGiB, rates());
  EXPECT_EQ(chosen.plan.memory.kv_pages, alone.memory.kv_pages);
  EXPECT_GT(chosen.retention.bytes, kGiB * 3 / 4);
  EXPECT_LE(chosen.plan.memory.total(), alone.memory.total() + kGiB);
}

}  // namespace
}  // namespace longstride
